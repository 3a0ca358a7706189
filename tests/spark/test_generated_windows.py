"""Windows × aggregates × EMIT against a model, after every epoch of generated traces with late rows and restarts."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.effort import EFFORT
from tests.spark.conftest import Opener
from tests.spark.following import Follower, Row, Sum, bag, contents, plain, settle
from tests.spark.window_model import Group, Sessions, WindowModel, Windows

import penstock

# An example is seconds of Spark: few of them, the same in every run, and a failing one is shown as it is.
few = settings(
    max_examples=1,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

DELAY = 1000
SOURCE = """CREATE SOURCE s (k STRING, v BIGINT, x DOUBLE, ts {type},
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"""

Step = list[Row] | int | str
"""Rows to insert, a watermark to set by hand (as a distance to the present one), or `restart`."""

seeds = st.integers(0, 2**32 - 1)
"""A trace is made from a number: the simplest one is then no simpler than others."""


def trace_of(seed: int) -> list[Step]:
    """Event time moves on; rows are spread around it, up to four seconds too late."""
    chance = random.Random(seed)
    out: list[Step] = []
    now = chance.randrange(5000)
    for _ in range(chance.randint(3, 5) if EFFORT == 1 else chance.randint(5, 8)):
        now += chance.randrange(2500)
        out.append([_row(chance, now) for _ in range(chance.randint(1, 8))])
        if chance.random() < 0.25:
            out.append(chance.randrange(2000))
    out.insert(chance.randint(2, len(out)), "restart")
    out.append(20_000)
    return out


def _row(chance: random.Random, now: int) -> Row:
    time = None if chance.random() < 0.05 else max(0, now + chance.randint(-4000, 2500))
    value = chance.choice([None, *range(-3, 6)])
    return (chance.choice(["a", "b", None]), value, chance.choice([None, 0.0, 0.5, -1.25, 3.0]), time)


def _known(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None]


def _or_none(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: function(values) if values else None


# name -> (SQL, what it is over the rows of a group in order of arrival)
AGGREGATES: dict[str, tuple[str, Callable[[list[Row]], Any]]] = {
    "n": ("count(*)", len),
    "c": ("count(v)", lambda g: len(_known([r[1] for r in g]))),
    "s": ("sum(v)", lambda g: _or_none(sum)(_known([r[1] for r in g]))),
    "a": ("avg(x)", lambda g: _or_none(statistics.fmean)(_known([r[2] for r in g]))),
    "lo": ("min(v)", lambda g: min(_known([r[1] for r in g]), default=None)),
    "hi": ("max(x)", lambda g: max(_known([r[2] for r in g]), default=None)),
    "vp": ("var_pop(x)", lambda g: _or_none(statistics.pvariance)(_known([r[2] for r in g]))),
    "any_v": ("bool_or(v > 3)", lambda g: _or_none(any)([v > 3 for v in _known([r[1] for r in g])])),
    "d": ("count(DISTINCT v)", lambda g: len(set(_known([r[1] for r in g])))),
    "f": ("sum(v) FILTER (WHERE x > 0)", lambda g: _or_none(sum)(_known([r[1] for r in g if (r[2] or 0) > 0]))),
    "m": ("median(x)", lambda g: _or_none(statistics.median)(_known([r[2] for r in g]))),
    "l": ("sort_array(array_agg(v))", lambda g: tuple(sorted(_known([r[1] for r in g])))),
}
NATIVE = ("n", "c", "s", "a", "lo", "hi", "vp", "any_v")


@dataclass(frozen=True)
class View:
    name: str
    windows: Windows | Sessions
    emit: str
    aggregates: tuple[str, ...] = tuple(AGGREGATES)
    lateness: int = 0
    late_to: str | None = None

    def sql(self) -> str:
        calls = ", ".join(f"{AGGREGATES[a][0]} AS {a}" for a in self.aggregates)
        lateness = f" ALLOW LATENESS INTERVAL '{self.lateness}' MILLISECOND" if self.lateness else ""
        late = f" LATE DATA TO {self.late_to}" if self.late_to else ""
        return (
            f"CREATE MATERIALIZED VIEW {self.name} AS SELECT k, window_start, window_end, {calls} FROM s "
            f"GROUP BY k, {self.windows.sql('ts')}{lateness}{late} EMIT {self.emit}"
        )


VIEWS = [
    View("tumble_close", Windows("TUMBLE", 2000), "ON WINDOW CLOSE", NATIVE),
    View("tumble_late", Windows("TUMBLE", 2000), "ON WINDOW CLOSE", lateness=1500, late_to="too_late"),
    View("offset_changes", Windows("TUMBLE", 3000, offset=700), "CHANGES"),
    View("hop_close", Windows("HOP", 3000, step=1000), "FINAL"),
    View("hop_update", Windows("HOP", 3000, step=2000, offset=300), "ON UPDATE"),
    View("cumulate_close", Windows("CUMULATE", 4000, step=1000), "AFTER WATERMARK", NATIVE),
    View("cumulate_changes", Windows("CUMULATE", 4000, step=2000), "CHANGES", ("n", "s", "hi")),
    View("session_close", Sessions(900), "ON WATERMARK"),
    View("session_changes", Sessions(900), "CHANGES", ("n", "s", "lo", "d")),
]


class Checked:
    """One view beside its model."""

    def __init__(self, view: View, db: penstock.Database) -> None:
        self.view = view
        self.model = WindowModel(view.windows, view.lateness)
        self.follower = Follower(db, view.name)
        self.sum = Sum()
        self.late: Counter[Row] = Counter()

    def reopened(self, db: penstock.Database) -> None:
        epoch = self.follower.epoch
        self.follower = Follower(db, self.view.name, as_of=epoch + 1)
        self.follower.epoch = epoch

    def check(self, db: penstock.Database, batch: list[Row], watermark: int | None) -> None:
        before = {g: self.row(g) for g in self.model.groups}
        taken = self.model.take(batch, watermark)
        self.late.update(taken.late)
        changes = self.follower.changes()
        name = self.view.name
        if self.view.emit == "CHANGES":
            for change in changes:
                self.sum.add(change)
            wanted = bag(self.row(g) for g in self.model.groups)
            assert self.sum.total == wanted, name
            assert contents(db, name) == wanted, name
            return
        got = bag(tuple(r.values()) for change in changes for r in change.rows())
        if self.view.emit == "ON UPDATE":
            assert got == bag(self.row(g) for g in taken.changed if before.get(g) != self.row(g)), name
            assert contents(db, name) == bag(self.row(g) for g in self.model.groups), name
        else:
            assert got == bag(self.row(g) for g in taken.closed), name
            assert contents(db, name) == bag(self.row(g) for g in self.model.done), name

    def row(self, group: Group) -> Row:
        rows = self.model.groups[group]
        return tuple(plain(v) for v in (*group, *(AGGREGATES[a][1](rows) for a in self.view.aggregates)))


def run(opener: Opener, folder: Path, views: list[View], trace: list[Step], type_: str) -> None:
    db = opener(folder)
    db.execute(SOURCE.format(type=type_))
    for view in views:
        db.execute(view.sql())
    checked = [Checked(v, db) for v in views]
    watermark: int | None = None
    for step in trace:
        if step == "restart":
            db.close()
            db = opener(folder)
            for c in checked:
                c.reopened(db)
            continue
        batch: list[Row] = []
        if isinstance(step, int):
            watermark = (watermark or 0) + step
            db.source("s").watermark(watermark)
        else:
            assert isinstance(step, list)
            batch = step
            db.insert("s", batch)
            times = [r[-1] for r in batch if r[-1] is not None]
            if times:
                watermark = max(max(times) - DELAY, watermark if watermark is not None else max(times) - DELAY)
        settle(db)
        assert db.source("s").current_watermark == watermark
        for c in checked:
            c.check(db, batch, watermark)
    for c in checked:
        if c.view.late_to:
            assert contents(db, c.view.late_to) == bag(c.late)
    db.close()


@pytest.mark.parametrize("type_", ["BIGINT", "TIMESTAMP"])
def test_windows_equal_the_model_after_every_epoch(interpreted: Opener, type_: str) -> None:
    views = VIEWS[::2] if type_ == "BIGINT" else VIEWS[1::2]

    @few
    @given(seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run(interpreted, Path(folder), views, trace_of(seed), type_)

    check()
