"""The Nexmark queries as one writes them by hand for Structured Streaming, as far as it can run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.nexmark.queries import BY_NAME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Frames = Mapping[str, "DataFrame"]

DELAY = "4 seconds"


@dataclass(frozen=True)
class ByHand:
    """A query over the frames of its sources, and the output mode that it needs."""

    build: Callable[[Frames], DataFrame]
    mode: Literal["append", "update"] = "append"


def _same(name: str) -> ByHand:
    """The text of Penstock's query: without state it means the same to Spark."""

    def build(frames: Frames) -> DataFrame:
        for source, frame in frames.items():
            frame.createOrReplaceTempView(source)
        return next(iter(frames.values())).sparkSession.sql(BY_NAME[name].select)

    return ByHand(build)


def _timed(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("date_time", DELAY)


def _window(size: str, slide: str | None = None) -> Column:
    from pyspark.sql import functions as f

    return f.window("date_time", size, slide).alias("w")


def _hot_items(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    counts = _timed(frames["bid"]).groupBy("auction", _window("10 seconds", "2 seconds")).agg(f.count("*").alias("num"))
    items = f.collect_list(f.struct("auction", "num")).alias("items")
    windows = counts.groupBy("w").agg(f.max("num").alias("top"), items)
    hottest = windows.select("w", f.expr("explode(filter(items, x -> x.num = top))").alias("i"))
    return hottest.select("i.auction", "i.num", f.col("w.start").alias("window_start"))


def _highest_bid(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    row = f.struct("price", "auction", "bidder", "date_time").alias("b")
    windows = _timed(frames["bid"]).groupBy(_window("10 seconds")).agg(f.max_by(row, "price").alias("b"))
    return windows.select("b.auction", "b.price", "b.bidder", "b.date_time")


def _new_users(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    people = _timed(frames["person"]).groupBy("id", "name", _window("10 seconds")).agg(f.count("*").alias("n"))
    sellers = _timed(frames["auction"]).groupBy("seller", _window("10 seconds")).agg(f.count("*").alias("n"))
    p, a = people.alias("p"), sellers.alias("a")
    both = p.join(a, f.expr("p.id = a.seller AND p.w = a.w"))
    return both.select("p.id", "p.name", f.col("p.w.start").alias("window_start"))


def _sessions(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    sessions = _timed(frames["bid"]).groupBy("bidder", f.session_window("date_time", "10 seconds").alias("w"))
    counts = sessions.agg(f.count("*").alias("bids"))
    return counts.select("bidder", "bids", f.col("w.start").alias("window_start"), f.col("w.end").alias("window_end"))


def _by_the_clock(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    now = frames["bid_now"].withColumn("p_time", f.current_timestamp()).withWatermark("p_time", "0 seconds")
    counts = now.groupBy("bidder", f.window("p_time", "10 seconds").alias("w")).agg(f.count("*").alias("bids"))
    return counts.select("bidder", "bids", f.col("w.start").alias("window_start"), f.col("w.end").alias("window_end"))


def _auction_statistics(frames: Frames) -> DataFrame:
    frames["bid"].createOrReplaceTempView("bid")
    return frames["bid"].sparkSession.sql(BY_NAME["q17"].select)


def _last_bid(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    row = f.struct("auction", "bidder", "price", "channel", "url", "date_time", "extra")
    return frames["bid"].groupBy("bidder", "auction").agg(f.max_by(row, "date_time").alias("b")).select("b.*")


BY_HAND: Mapping[str, ByHand] = {
    **{name: _same(name) for name in ("q0", "q1", "q2", "q3", "q10", "q13", "q14", "q20", "q21", "q22")},
    "q5": ByHand(_hot_items),
    "q7": ByHand(_highest_bid),
    "q8": ByHand(_new_users),
    "q11": ByHand(_sessions),
    "q12": ByHand(_by_the_clock),
    "q17": ByHand(_auction_statistics, "update"),
    "q18": ByHand(_last_bid, "update"),
}

WHY_NOT = {
    "q4": "an aggregate of an aggregate that changes",
    "q6": "an analytic function",
    "q9": "a ranking",
    "q15": "count(DISTINCT)",
    "q16": "count(DISTINCT)",
    "q19": "a ranking",
}
"""What of the other queries Structured Streaming refuses."""
