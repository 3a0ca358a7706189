"""Processing time never goes back, whatever the wall clock does and whatever the order of commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.runtime.timing import commit

from penstock.catalog.objects import Column, Kind, ObjectInfo, Watermark
from penstock.log import Log, Part
from penstock.runtime.storage import proctime
from penstock.runtime.storage.feed import Feed

SOURCE = ObjectInfo(
    7,
    "ticks",
    Kind.SOURCE,
    (Column("v", "bigint"), Column("ts", "timestamp")),
    watermark=Watermark("ts", proctime=True),
)
HOUR_MS = 3_600_000


class Wall:
    """A wall clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 1_000_000_000_000
        monkeypatch.setattr(proctime, "wall_ms", lambda: self.ms)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log.open(tmp_path)
    yield log
    log.close()


def stamps(log: Log) -> list[tuple[list[int], int | None]]:
    """Of each commit the times of its rows and the watermark after it, in epoch milliseconds."""
    schema = pa.schema([("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    out = []
    for entry in log.entries(SOURCE.id):
        times = log.read(entry, schema).column("ts").cast(pa.int64()).to_pylist()
        out.append(([t // 1000 for t in times], entry.watermark))
    return out


def test_time_stands_still_while_the_wall_clock_is_behind(
    wall: Wall, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Feed(SOURCE, {}, 0)
    start = wall.ms
    with caplog.at_level(logging.WARNING):
        for ms in (start, start + 10, start + 10 - HOUR_MS, start - HOUR_MS + 20, start + 5):
            wall.ms = ms
            commit(log, {7: feed}, [feed.part([{"v": 1}])])
            assert feed.clock is not None
            assert (feed.clock.warning is not None) == (ms < start)
        wall.ms = start + 11
        commit(log, {7: feed}, [Part(object_id=7, column_count=2)])
    expected = [start, start + 10, start + 10, start + 10, start + 10]
    assert stamps(log) == [*(([t], t) for t in expected), ([], start + 11)]
    assert [r.getMessage() for r in caplog.records] == [
        "The wall clock is 3600 s behind the last row of ticks: its processing time stands still until the clock has caught up."
    ]


def test_time_goes_on_from_the_last_row_after_a_restart(wall: Wall, log: Log) -> None:
    first = Feed(SOURCE, {}, 0)
    commit(log, {7: first}, [first.part([{"v": 1}])])
    wall.ms -= HOUR_MS
    again = Feed(SOURCE, {}, 0, log.watermark(7))
    commit(log, {7: again}, [again.part([{"v": 2}])])
    assert stamps(log) == [([wall.ms + HOUR_MS], wall.ms + HOUR_MS)] * 2


def test_rows_have_the_time_of_the_commit_and_not_of_the_insert(wall: Wall, log: Log) -> None:
    feed = Feed(SOURCE, {}, 0)
    start = wall.ms
    waiting = feed.part([{"v": 1}])
    wall.ms = start + 5000
    commit(log, {7: feed}, [Part(object_id=7, column_count=2)])
    commit(log, {7: feed}, [waiting])
    assert stamps(log) == [([], start + 5000), ([start + 5000], start + 5000)]


def test_a_watermark_set_by_hand_moves_the_clock(wall: Wall, log: Log) -> None:
    feed = Feed(SOURCE, {}, 0)
    commit(log, {7: feed}, [Part(object_id=7, watermark=wall.ms + 60_000, column_count=2)])
    commit(log, {7: feed}, [feed.part([{"v": 1}])])
    assert stamps(log)[1] == ([wall.ms + 60_000], wall.ms + 60_000)


def test_no_row_is_behind_a_commit_before_it(log: Log) -> None:
    feed = Feed(SOURCE, {}, 0)

    def insert() -> None:
        for _ in range(times(60)):
            commit(log, {7: feed}, [feed.part([{"v": 1}])])

    threads = [threading.Thread(target=insert) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(times(60)):
        commit(log, {7: feed}, [Part(object_id=7, column_count=2)])
    for t in threads:
        t.join()
    watermark = 0
    for rows, after in stamps(log):
        assert all(t >= watermark for t in rows)
        assert after is not None
        watermark = after
