"""The output of a stream: its changes since the last call, without waiting, and plain values to compare."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import penstock

Row = tuple[Any, ...]

# Long enough for a loaded machine; a query that hangs becomes a failure that names it.
SOON_S = 120

QUERIES = ("stream", "materialized view")


def until(holds: Callable[[], bool]) -> None:
    """Waits for what comes by itself, up to a bound."""
    end = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def settle(database: penstock.Database) -> None:
    """All that was committed is in every view, and no query has failed."""
    database.flush(timeout=SOON_S)
    failed = [f"{s.name}: {s.error}" for s in database.status() if s.error and s.kind in QUERIES]
    assert not failed, failed


class Follower:
    """A subscription that is read dry after `db.flush()`, which returns only when everything has been published."""

    def __init__(self, database: penstock.Database, name: str, **options: Any) -> None:
        self.name = name
        self.subscription = database.subscribe(name, **options)
        self.epoch = 0

    def changes(self) -> list[penstock.Change]:
        out = []
        while (change := self.subscription.next(timeout=0)) is not None:
            self.epoch = max(self.epoch, change.epoch)
            if change.kind != "progress":
                out.append(change)
        return out

    def rows(self) -> list[Row]:
        """The rows of all changes, `__weight` last where the stream is a changelog."""
        return [row for change in self.changes() for row in rows_of(change)]


def rows_of(change: penstock.Change) -> list[Row]:
    return tuples(change.arrow())


def tuples(table: Any) -> list[Row]:
    if not table.num_columns:
        return []
    return [tuple(plain(v) for v in row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


def plain(value: Any) -> Any:
    """Timestamps as epoch milliseconds, decimals as numbers, floats to eleven digits."""
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return round(moment.timestamp() * 1000)
    if isinstance(value, Decimal):
        return plain(float(value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.11g}") + 0.0
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        return tuple(sorted((k, plain(v)) for k, v in value.items()))
    return value


def bag(rows: Iterable[Sequence[Any]]) -> Counter[Row]:
    return Counter(tuple(plain(v) for v in row) for row in rows)


def contents(database: penstock.Database, name: str) -> Counter[Row]:
    return bag(database.sql(f"SELECT * FROM {name}").fetchall())


class Sum:
    """Adds up a changelog, and checks of every epoch what each one promises."""

    def __init__(self) -> None:
        self.total: Counter[Row] = Counter()

    def add(self, change: penstock.Change) -> None:
        rows = rows_of(change)
        weights = [r[-1] for r in rows]
        assert 0 not in weights
        firsts = [w > 0 for w in weights]
        assert firsts == sorted(firsts), f"epoch {change.epoch}: an assertion before a retraction: {rows}"
        seen = [r[:-1] for r in rows]
        assert len(set(seen)) == len(seen), f"epoch {change.epoch} is not consolidated: {rows}"
        for r in rows:
            self.total[r[:-1]] += r[-1]
            assert self.total[r[:-1]] >= 0, f"epoch {change.epoch} retracts what is not there: {r}"
        self.total = +self.total
