"""The Nexmark queries as live views: at every checkpoint each equals Spark's batch answer over the rows that have come."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from benchmarks.nexmark.generator import START_US, Events, Nexmark
from benchmarks.nexmark.queries import BY_NAME, QUERIES, create
from pyspark.sql import SparkSession
from tests.effort import EFFORT
from tests.generated.sessions import batch_session
from tests.spark.conftest import Opener
from tests.spark.following import Row, bag, contents, settle

import penstock

DELAY_S = 1
# Two events in three arrive out of order, but none later than the delay.
EVENTS = Nexmark(seed=7, per_second=200, disorder=150)
SIDE_INPUT = [(key, f"side {key}") for key in range(0, 10_000, 3)]

# A window as Spark writes it in a batch. Sessions of Spark do not hold rows that are exactly the gap apart, which no two are here.
TUMBLED = "SELECT *, w.start AS window_start, w.end AS window_end FROM (SELECT *, window(date_time, '10 seconds') AS w FROM {})"
HOPPED = "SELECT *, w.start AS window_start, w.end AS window_end FROM (SELECT *, window(date_time, '10 seconds', '2 seconds') AS w FROM bid)"
WINDOWED = {
    "q5": f"""
WITH counts AS (SELECT auction, count(*) AS num, window_start, window_end FROM ({HOPPED}) GROUP BY ALL)
SELECT auction, num, window_start
FROM (SELECT *, max(num) OVER (PARTITION BY window_start) AS top FROM counts)
WHERE num = top AND window_end <= watermark()""",
    "q7": f"""
SELECT auction, price, bidder, date_time
FROM (SELECT *, max(price) OVER (PARTITION BY window_start) AS top FROM ({TUMBLED.format("bid")}))
WHERE price = top AND window_end <= watermark()""",
    "q8": f"""
SELECT DISTINCT p.id, p.name, p.window_start
FROM ({TUMBLED.format("person")}) p JOIN ({TUMBLED.format("auction")}) a ON p.id = a.seller AND p.window_start = a.window_start
WHERE p.window_end <= watermark()""",
    "q11": """
SELECT bidder, count(*) AS bids, min(date_time) AS window_start, max(date_time) + INTERVAL 10 SECONDS AS window_end
FROM (SELECT *, sum(first) OVER (PARTITION BY bidder ORDER BY date_time) AS session
      FROM (SELECT *, CASE WHEN date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time)
                                <= INTERVAL 10 SECONDS THEN 0 ELSE 1 END AS first FROM bid))
GROUP BY bidder, session HAVING max(date_time) + INTERVAL 10 SECONDS <= watermark()""",
}
COMPARED = [q for q in QUERIES if q.name != "q12"]


class Answers:
    """All rows so far as plain Spark tables, and each query over them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = batch_session(spark)
        self._rows: dict[str, list[pa.RecordBatch]] = {"person": [], "auction": [], "bid": []}
        self._spark.createDataFrame(SIDE_INPUT, "key BIGINT, value STRING").createOrReplaceTempView("side_input")

    def add(self, events: Events) -> None:
        for name, batch in events.items():
            self._rows[name].append(batch)

    def load(self) -> None:
        for name, batches in self._rows.items():
            self._spark.createDataFrame(pa.Table.from_batches(batches)).createOrReplaceTempView(name)

    def watermark(self, reads: Iterable[str]) -> dt.datetime:
        """The smallest over the sources of the largest time, less the delay."""
        newest = [max(max(b["date_time"].to_pylist()) for b in self._rows[name] if len(b)) for name in reads]
        return min(newest) - dt.timedelta(seconds=DELAY_S)

    def of(self, name: str) -> Counter[Row]:
        query = BY_NAME[name]
        reads = [r for r in query.reads if r in self._rows]
        sql = WINDOWED.get(name, query.select)
        if "watermark()" in sql:
            sql = sql.replace("watermark()", f"TIMESTAMP '{self.watermark(reads):%Y-%m-%d %H:%M:%S.%f}'")
        return bag(tuple(r) for r in self._spark.sql(sql).collect())


def insert(db: penstock.Database, events: Events) -> None:
    with db.transaction() as transaction:
        for name, batch in events.items():
            transaction.insert(name, batch)
        now = pa.array([None] * len(events.bid), pa.timestamp("us", tz="UTC"))
        transaction.insert("bid_now", pa.table([*events.bid.columns, now], [*events.bid.schema.names, "p_time"]))


def check_processing_time(db: penstock.Database, bids: Counter[int]) -> None:
    """Windows of ten seconds by the clock: no bid is counted twice, and each window once for a bidder."""
    rows = db.sql("SELECT bidder, bids, window_start, window_end FROM q12").fetchall()
    assert len({(bidder, start) for bidder, _, start, _ in rows}) == len(rows)
    assert all(end - start == dt.timedelta(seconds=10) and start.second % 10 == 0 for _, _, start, end in rows)
    counted: Counter[int] = Counter()
    for bidder, count, _, _ in rows:
        counted[bidder] += count
    assert counted <= bids


def files(folder: Path) -> Counter[Row]:
    import pyarrow.parquet as pq

    return bag(
        row for f in folder.rglob("*.parquet") for row in zip(*pq.read_table(f).to_pydict().values(), strict=True)
    )


def run(opener: Opener, spark: SparkSession, folder: Path, cuts: list[int], restarts: bool = False) -> None:
    """Events up to each of `cuts`, one commit at a time, checked after the last one; with more effort, or `restarts`, after each, and with `restarts` the database is then opened again."""
    db = opener(folder / "db")
    files_folder = folder / "files"
    for name in ("person", "auction", "bid", "bid_now", "side_input"):
        db.execute(create(name, str(DELAY_S)))
    db.insert("side_input", SIDE_INPUT)
    for query in QUERIES:
        db.execute(query.create())
    db.execute(f"CREATE SINK log INTO FILES (path = '{files_folder}', format = 'parquet') AS {BY_NAME['q10'].select}")
    answers, bidders = Answers(spark), Counter[int]()
    for first, end in zip([0, *cuts], cuts, strict=False):
        events = EVENTS.events(first, end)
        insert(db, events)
        answers.add(events)
        bidders.update(events.bid["bidder"].to_pylist())
        settle(db)
        if end != cuts[-1] and not restarts and EFFORT == 1:
            continue
        answers.load()
        for query in COMPARED:
            got, wanted = contents(db, query.name), answers.of(query.name)
            assert got == wanted, f"{query.name} at {end}: too much {got - wanted}, too little {wanted - got}"
            if end == cuts[-1]:
                assert wanted, f"{query.name} has no rows"
        check_processing_time(db, bidders)
        assert files(files_folder) == answers.of("q10")
        if restarts:
            db.close()
            db = opener(folder / "db")


def test_every_query_equals_batch(interpreted: Opener, spark: SparkSession, tmp_path: Path) -> None:
    run(interpreted, spark, tmp_path, [2500, 8000])


def test_rows_do_not_depend_on_how_they_are_cut() -> None:
    whole = EVENTS.events(0, 3000)
    parts = [EVENTS.events(0, 700), EVENTS.events(700, 701), EVENTS.events(701, 3000)]
    for name, batch in whole.items():
        assert pa.Table.from_batches([dict(p.items())[name] for p in parts]).combine_chunks().to_batches() == [batch]
    times = sorted(t.value // 1000 for n, b in whole.items() for t in b["date_time"].to_pandas())
    assert times == [START_US + 5_000 * i for i in range(3000)]
