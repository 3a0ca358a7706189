"""Stateless nodes: each handles one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from penstock.plan.nodes.base import Expr, Interval, Named, Node, TimeAttr


@dataclass(frozen=True)
class Scan(Node):
    """Rows of a catalogue object. `fields` pairs internal names with the object's column names."""

    object: str
    object_id: int
    fields: tuple[tuple[str, str], ...]
    is_changelog: bool
    time_attrs: tuple[TimeAttr, ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    """Column types by internal name, where known."""

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.fields)

    @cached_property
    def changelog(self) -> bool:
        return self.is_changelog

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        return self.time_attrs


@dataclass(frozen=True)
class Values(Node):
    """Constant rows, emitted in the first epoch."""

    names: tuple[str, ...]
    rows: tuple[tuple[Expr, ...], ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True)
class Filter(Node):
    child: Node
    predicate: Expr

    @cached_property
    def window_keys(self) -> frozenset[str]:
        return self.child.window_keys


@dataclass(frozen=True)
class Project(Node):
    child: Node
    items: tuple[Named, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.items)

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        lag = {t.column: t.lag_ms for t in self.child.times}
        return tuple(TimeAttr(i.name, lag[i.expr.column]) for i in self.items if i.expr.column in lag)

    @cached_property
    def window_ends(self) -> frozenset[str]:
        return self._passed_on(self.child.window_ends)

    @cached_property
    def window_keys(self) -> frozenset[str]:
        return self._passed_on(self.child.window_keys)

    def _passed_on(self, columns: frozenset[str]) -> frozenset[str]:
        return frozenset(i.name for i in self.items if i.expr.column in columns)


@dataclass(frozen=True)
class Generate(Node):
    """LATERAL VIEW / UNNEST / explode: the child's columns plus those of each generated row."""

    child: Node
    generator: Expr
    outputs: tuple[str, ...]
    outer: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + self.outputs


WindowKind = Literal["tumble", "hop", "cumulate"]


@dataclass(frozen=True)
class WindowAssign(Node):
    """Each row once per window that covers it, with the window's bounds in two new columns.

    TUMBLE: size. HOP: slide (step) and size. CUMULATE: step and size. The bounds have the type of the time
    expression: TIMESTAMP, or BIGINT Unix milliseconds. Rows whose time is NULL are dropped (and counted).
    """

    child: Node
    kind: WindowKind
    time: Expr
    size: Interval
    step: Interval | None
    offset: Interval
    start: str
    end: str

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, self.start, self.end)

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        base = {t.column: t.lag_ms for t in self.child.times}
        lag = base.get(self.time.column or "")
        if lag is None:
            return self.child.times
        size_ms = self.size.micros // 1000 + self.size.months * 31 * 86_400_000
        return (*self.child.times, TimeAttr(self.start, lag + size_ms), TimeAttr(self.end, lag))

    @cached_property
    def window_ends(self) -> frozenset[str]:
        timed = self.time.column in {t.column for t in self.child.times}
        return self.child.window_ends | ({self.end} if timed else frozenset())


@dataclass(frozen=True)
class Union(Node):
    """UNION ALL. All children have the same number of columns; the output uses the names of the first."""

    inputs: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.inputs[0].columns

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        first, *rest = self.inputs
        out = []
        for t in first.times:
            i = first.columns.index(t.column)
            lags = [t.lag_ms] + [next((u.lag_ms for u in n.times if u.column == n.columns[i]), -1) for n in rest]
            if -1 not in lags:
                out.append(TimeAttr(t.column, max(lags)))
        return tuple(out)

    @cached_property
    def window_ends(self) -> frozenset[str]:
        every = [{i for i, c in enumerate(n.columns) if c in n.window_ends} for n in self.inputs]
        return frozenset(self.columns[i] for i in set.intersection(*every))
