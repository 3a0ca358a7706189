"""Stateless nodes: each handles one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from penstock.plan.nodes.base import (
    Expr,
    Interval,
    Linear,
    Named,
    Need,
    Node,
    Reads,
    TimeAttr,
    known_types,
    same_columns,
    shared_columns,
    shared_types,
)
from penstock.plan.nodes.text import interval_text, named_text, sql_text


@dataclass(frozen=True)
class Scan(Linear):
    """Rows of a catalogue object. `fields` pairs internal names with the object's column names."""

    reads: ClassVar[Reads] = Reads.OWN
    column_names: ClassVar[tuple[str, ...]] = ("fields",)

    object: str
    object_id: int
    fields: tuple[tuple[str, str], ...]
    is_changelog: bool
    time_attrs: tuple[TimeAttr, ...] = ()
    types: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Column types by internal name, where known. They follow from the object; pruning does not remove them."""
    object_key: tuple[str, ...] = field(default=(), compare=False)
    """The columns of the object's key, under their own names."""

    def described(self) -> str:
        lags = ", ".join(t.column + (f" -{t.lag_ms}ms" if t.lag_ms else "") for t in self.times)
        times = f" time [{lags}]" if self.times else ""
        return f"Scan {self.object} [{', '.join(i for i, _ in self.fields)}]{times}"

    def narrowed(self, need: frozenset[str]) -> Node:
        fields = tuple(f for f in self.fields if f[0] in need) or self.fields[:1]
        kept = {f[0] for f in fields}
        return replace(self, fields=fields, time_attrs=tuple(t for t in self.time_attrs if t.column in kept))

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        return dict(self.types)

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
class Values(Linear):
    """Constant rows, emitted in the first epoch."""

    reads: ClassVar[Reads] = Reads.WHOLE
    column_names: ClassVar[tuple[str, ...]] = ("names",)

    names: tuple[str, ...]
    rows: tuple[tuple[Expr, ...], ...]

    def described(self) -> str:
        return f"Values {len(self.rows)} row{'s' if len(self.rows) != 1 else ''} [{', '.join(self.names)}]"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True)
class Filter(Linear):
    reads: ClassVar[Reads] = Reads.PASSED
    column_names: ClassVar[tuple[str, ...]] = ()

    child: Node
    predicate: Expr

    def described(self) -> str:
        return f"Filter {sql_text(self.predicate)}"

    @cached_property
    def window_keys(self) -> frozenset[str]:
        return self.child.window_keys


@dataclass(frozen=True)
class Project(Linear):
    reads: ClassVar[Reads] = Reads.OWN
    column_names: ClassVar[tuple[str, ...]] = ()

    child: Node
    items: tuple[Named, ...]

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return ({i.name: i.expr for i in self.items},)

    def described(self) -> str:
        return f"Project [{named_text(self.items)}]"

    def narrowed(self, need: frozenset[str]) -> Node:
        return replace(self, items=tuple(i for i in self.items if i.name in need) or self.items[:1])

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        return known_types(self.items, self.child.column_types)

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
class Generate(Linear):
    """LATERAL VIEW / UNNEST / explode: the child's columns plus those of each generated row."""

    reads: ClassVar[Reads] = Reads.PASSED
    column_names: ClassVar[tuple[str, ...]] = ("outputs",)

    child: Node
    generator: Expr
    outputs: tuple[str, ...]
    outer: bool = False

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return (same_columns(self.child.columns),)

    def described(self) -> str:
        outer = " outer" if self.outer else ""
        return f"Generate {sql_text(self.generator)} → [{', '.join(self.outputs)}]{outer}"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + self.outputs


WindowKind = Literal["tumble", "hop", "cumulate"]


@dataclass(frozen=True)
class WindowAssign(Linear):
    """Each row once per window that covers it, with the window's bounds in two new columns.

    TUMBLE: size. HOP: slide (step) and size. CUMULATE: step and size. The bounds have the type of the time
    expression: TIMESTAMP, or BIGINT Unix milliseconds. Rows whose time is NULL are dropped (and counted).
    """

    reads: ClassVar[Reads] = Reads.PASSED
    column_names: ClassVar[tuple[str, ...]] = ("start", "end")

    child: Node
    kind: WindowKind
    time: Expr
    size: Interval
    step: Interval | None
    offset: Interval
    start: str
    end: str

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return (same_columns(self.child.columns),)

    def described(self) -> str:
        step = f", {interval_text(self.step)}" if self.step else ""
        offset = f", offset {interval_text(self.offset)}" if self.offset != Interval() else ""
        size = interval_text(self.size)
        return f"Window {self.kind}({sql_text(self.time)}{step}, {size}{offset}) → [{self.start}, {self.end}]"

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        known = self.child.column_types
        time = known.get(self.time.column or "")
        return {**known, **({self.start: time, self.end: time} if time is not None else {})}

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
class Union(Linear):
    """UNION ALL. All children have the same number of columns; the output uses the names of the first."""

    reads: ClassVar[Reads] = Reads.PASSED
    column_names: ClassVar[tuple[str, ...]] = ()

    inputs: tuple[Node, ...]

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return shared_columns(self)

    def described(self) -> str:
        return "Union all"

    def needs(self, need: frozenset[str]) -> tuple[Need, ...]:
        """Columns are matched by position."""
        keep = [i for i, n in enumerate(self.columns) if n in need] or [0]
        return tuple(Need.exactly(tuple(c.columns[i] for i in keep)) for c in self.inputs)

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        return shared_types(self.inputs)

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
