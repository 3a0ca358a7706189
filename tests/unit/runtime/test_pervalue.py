"""The watermark of a source with `watermark_per`, value by value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import effort
from tests.unit.runtime.timing import commit

from penstock.catalog.objects import Column, Kind, ObjectInfo, Watermark
from penstock.catalog.types import schema_of
from penstock.errors import PenstockError
from penstock.log import Log, Part
from penstock.runtime.storage import pervalue
from penstock.runtime.storage.feed import Feed
from penstock.runtime.storage.pervalue import ValueWatermark, check

COLUMNS = (Column("device", "string"), Column("ts", "bigint"))


def source(**options: str) -> ObjectInfo:
    return ObjectInfo(
        7,
        "readings",
        Kind.SOURCE,
        COLUMNS,
        watermark=Watermark("ts", delay_ms=100),
        options={"max_future_skew": "off", "watermark_per": "DEVICE", **options},
    )


class Clock:
    """The monotonic clock, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(pervalue.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log.open(tmp_path)
    yield log
    log.close()


class Source:
    def __init__(self, log: Log, info: ObjectInfo) -> None:
        self.log = log
        self.info = info
        self.open()

    def open(self) -> None:
        history = (self.log.read(e, schema_of(COLUMNS)) for e in self.log.iterate(7))
        self.feed = Feed(self.info, {}, 0, self.log.watermark(7), history)

    def insert(self, *rows: tuple[str | None, int]) -> int | None:
        """Commits rows; the watermark after it."""
        return commit(self.log, {7: self.feed}, [self.feed.part(list(rows))]).entries[0].watermark

    def tick(self) -> tuple[int | None, bool] | None:
        """What the ticker commits when time has passed: the watermark, and whether the source is idle."""
        assert isinstance(self.feed.clock, ValueWatermark)
        if not self.feed.clock.due():
            return None
        entry = commit(self.log, {7: self.feed}, [Part(object_id=7, column_count=2)]).entries[0]
        return entry.watermark, entry.idle


def test_the_slowest_value_decides(log: Log, clock: Clock) -> None:
    readings = Source(log, source())
    assert readings.insert(("a", 1000), ("a", 3000), ("b", 2000)) == 1900
    assert readings.insert(("a", 9000)) == 1900
    assert readings.insert(("b", 2500)) == 2400
    assert readings.insert(("c", 500)) == 2400  # A new value that is behind: the watermark does not go back.
    assert readings.insert(("b", 8000)) == 2400
    assert readings.insert((None, 8000), ("c", 7000)) == 6900
    clock.now += 1_000_000
    assert readings.tick() is None  # Without an idle_timeout a value is waited for for ever.


def test_values_that_are_idle_do_not_count(log: Log, clock: Clock) -> None:
    readings = Source(log, source(idle_timeout="10 seconds"))
    readings.insert(("a", 1000), ("b", 2000))
    clock.now += 6
    assert readings.insert(("b", 5000)) == 900
    assert readings.tick() is None
    clock.now += 4
    assert readings.tick() == (4900, False)
    assert readings.tick() is None
    clock.now += 6
    assert readings.tick() == (4900, True)
    assert readings.tick() is None
    assert readings.insert(("a", 6000)) == 5900


def test_when_all_values_are_idle_the_furthest_decides(log: Log, clock: Clock) -> None:
    readings = Source(log, source(idle_timeout="10 seconds"))
    readings.insert(("a", 1000), ("b", 2000), ("c", 7000))
    clock.now += 10
    assert readings.tick() == (6900, True)


def test_values_are_known_again_after_a_restart(log: Log, clock: Clock) -> None:
    readings = Source(log, source())
    readings.insert(("a", 1000), ("b", 2000))
    readings.insert(("b", 9000))
    readings.open()
    assert readings.insert(("b", 9500)) == 900
    assert readings.insert(("a", 9200)) == 9100


def test_with_too_many_values_the_most_silent_ones_count_as_idle(
    log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pervalue, "MOST_VALUES", 3)
    readings = Source(log, source())
    for i, name in enumerate("abc"):
        readings.insert((name, 1000 * (i + 1)))
    assert readings.insert(("d", 4000)) == 1900
    assert readings.insert(("b", 5000)) == 2900


def test_a_watermark_set_by_hand_and_rows_from_the_future(log: Log, clock: Clock) -> None:
    readings = Source(log, source(max_future_skew="1 second"))
    assert readings.insert(("a", 1000), ("b", 1 << 50)) == 900
    assert readings.feed.counts.future == 1
    mark = Part(object_id=7, watermark=5000, column_count=2)
    assert commit(log, {7: readings.feed}, [mark]).entries[0].watermark == 5000
    assert readings.insert(("a", 2000)) == 5000


def test_time_in_which_the_source_stood_still_does_not_count(log: Log, clock: Clock) -> None:
    readings = Source(log, source(idle_timeout="10 seconds"))
    readings.insert(("a", 1000), ("b", 2000))
    assert isinstance(readings.feed.clock, ValueWatermark)
    clock.now += 60
    readings.feed.clock.stood_still(55)
    assert readings.tick() is None
    assert readings.insert(("b", 5000)) == 900
    clock.now += 5
    assert readings.tick() == (4900, False)


def test_what_is_foreseen_has_not_happened(log: Log, clock: Clock) -> None:
    readings = Source(log, source(idle_timeout="10 seconds"))
    readings.insert(("a", 1000), ("b", 2000))
    later = readings.feed.part([("a", 3000), ("b", 2500), ("c", 7000)])
    assert readings.feed.foreseen(later) == readings.feed.foreseen(later) == 2400
    assert readings.insert(("b", 9000)) == 900
    assert readings.feed.foreseen(later) == 2900


@pytest.mark.parametrize("seed", range(effort.times(4, quick=2)))
def test_against_the_definition(log: Log, clock: Clock, seed: int) -> None:
    chance = random.Random(seed)
    readings = Source(log, source(idle_timeout="10 seconds"))
    times: dict[str, int] = {}
    seen: dict[str, float] = {}
    expected = None
    for _ in range(200):
        clock.now += chance.choice([0, 0, 1, 3])
        rows = [(chance.choice("abcdef"), chance.randrange(100_000)) for _ in range(chance.randint(1, 3))]
        for value, at in rows:
            active = value in seen and clock.now - seen[value] < 10
            times[value] = max(times[value], at) if active else max(at, max(t for v, t in rows if v == value))
            seen[value] = clock.now
        smallest = min(times[v] for v in seen if clock.now - seen[v] < 10) - 100
        expected = smallest if expected is None else max(expected, smallest)
        assert readings.insert(*rows) == expected


@pytest.mark.parametrize(
    ("info", "code"),
    [
        (source(watermark_per="devise"), "PSK-1004"),
        (ObjectInfo(1, "s", Kind.SOURCE, COLUMNS, options={"watermark_per": "device"}), "PSK-1012"),
        (
            ObjectInfo(
                1,
                "s",
                Kind.SOURCE,
                COLUMNS,
                watermark=Watermark("ts", proctime=True),
                options={"watermark_per": "device"},
            ),
            "PSK-1012",
        ),
        (
            ObjectInfo(
                1,
                "s",
                Kind.SOURCE,
                (Column("device", "array<int>"), Column("ts", "bigint")),
                watermark=Watermark("ts"),
                options={"watermark_per": "device"},
            ),
            "PSK-1012",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(info: ObjectInfo, code: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check(info)
    assert caught.value.code == code
