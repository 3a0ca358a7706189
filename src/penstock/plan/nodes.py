"""The logical algebra: frozen nodes over Z-sets.

Columns inside a plan have flat, unique internal names (`alias$column`); expressions are sqlglot trees over
unqualified, quoted columns of those names, so that `Expr.sql()` is Spark SQL over the child's columns.
A node says what it means; on which path it runs (native Spark or kernel) is decided by `penstock.spark.compile`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Literal

from sqlglot import exp


@dataclass(frozen=True, eq=False)
class Expr:
    """A Spark SQL expression over internal column names. Equality is by text."""

    node: exp.Expression

    def sql(self) -> str:
        return self.node.sql(dialect="spark")

    @cached_property
    def refs(self) -> frozenset[str]:
        return frozenset(c.name for c in self.node.find_all(exp.Column))

    @property
    def column(self) -> str | None:
        """The internal name if the expression is a bare column."""
        return self.node.name if isinstance(self.node, exp.Column) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.sql() == other.sql()

    def __hash__(self) -> int:
        return hash(self.sql())


def col(name: str) -> Expr:
    return Expr(exp.Column(this=exp.Identifier(this=name, quoted=True)))


@dataclass(frozen=True)
class Interval:
    """A length of time: calendar months and microseconds. At most one of them is not zero."""

    months: int = 0
    micros: int = 0


@dataclass(frozen=True)
class Named:
    name: str
    expr: Expr


@dataclass(frozen=True)
class TimeAttr:
    """A column whose future values are above `watermark - lag_ms`."""

    column: str
    lag_ms: int = 0


@dataclass(frozen=True)
class Node:
    @property
    def children(self) -> tuple[Node, ...]:
        child = getattr(self, "child", None)
        return (child,) if child is not None else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Internal names of the output columns, in order."""
        return self.children[0].columns

    @property
    def changelog(self) -> bool:
        """True if rows may be retracted: the output has a `__weight` column that can be negative."""
        return any(c.changelog for c in self.children)

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        """Event-time columns of the output."""
        return tuple(t for c in self.children for t in c.times if t.column in self.columns)

    @property
    def window_ends(self) -> frozenset[str]:
        """Columns that hold the end of a window whose rows come no later than the watermark gets there (less the column's lag)."""
        return frozenset(e for c in self.children for e in c.window_ends if e in self.columns)

    @property
    def waits(self) -> bool:
        """True if rows may come out when the watermark has passed their time."""
        return any(c.waits for c in self.children)

    @property
    def punctual(self) -> bool:
        """True if every row comes out in the epoch in which the watermark passes its time (plus lag): none before, none late."""
        return bool(self.children) and all(c.punctual for c in self.children)

    def walk(self) -> Iterator[Node]:
        yield self
        for c in self.children:
            yield from c.walk()


@dataclass(frozen=True)
class Scan(Node):
    """Rows of a catalogue object. `fields` pairs internal names with the object's column names."""

    object: str
    object_id: int
    fields: tuple[tuple[str, str], ...]
    is_changelog: bool
    time_attrs: tuple[TimeAttr, ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    """Internal names with the types of their columns, as far as they are known."""

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.fields)

    @property
    def changelog(self) -> bool:
        return self.is_changelog

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        return self.time_attrs


@dataclass(frozen=True)
class Values(Node):
    """Constant rows, there from the first epoch on."""

    names: tuple[str, ...]
    rows: tuple[tuple[Expr, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True)
class Filter(Node):
    child: Node
    predicate: Expr


@dataclass(frozen=True)
class Project(Node):
    child: Node
    items: tuple[Named, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.items)

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        lag = {t.column: t.lag_ms for t in self.child.times}
        return tuple(TimeAttr(i.name, lag[i.expr.column]) for i in self.items if i.expr.column in lag)

    @property
    def window_ends(self) -> frozenset[str]:
        return frozenset(i.name for i in self.items if i.expr.column in self.child.window_ends)


@dataclass(frozen=True)
class Generate(Node):
    """LATERAL VIEW / UNNEST / explode: the child's columns and those of each generated row."""

    child: Node
    generator: Expr
    outputs: tuple[str, ...]
    outer: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + self.outputs


WindowKind = Literal["tumble", "hop", "cumulate"]


@dataclass(frozen=True)
class WindowAssign(Node):
    """Each row once per window that covers it, with the window's bounds in two new columns.

    TUMBLE: size. HOP: slide (step) and size. CUMULATE: step and size. The bounds have the type of the time
    expression: TIMESTAMP, or BIGINT epoch milliseconds. Rows whose time is NULL are dropped (and counted).
    """

    child: Node
    kind: WindowKind
    time: Expr
    size: Interval
    step: Interval | None
    offset: Interval
    start: str
    end: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, self.start, self.end)

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        base = {t.column: t.lag_ms for t in self.child.times}
        lag = base.get(self.time.column or "")
        if lag is None:
            return self.child.times
        size_ms = self.size.micros // 1000 + self.size.months * 31 * 86_400_000
        return (*self.child.times, TimeAttr(self.start, lag + size_ms), TimeAttr(self.end, lag))

    @property
    def window_ends(self) -> frozenset[str]:
        timed = self.time.column in {t.column for t in self.child.times}
        return self.child.window_ends | ({self.end} if timed else frozenset())


BY_ANOTHER = frozenset({"min_by", "max_by"})
"""Aggregates that choose a row by their last argument."""

EDGES = frozenset({"first", "first_value", "last", "last_value", "any_value"})
"""Aggregates that take the value of one row as it is, also NULL."""


@dataclass(frozen=True)
class AggCall:
    """One aggregate. `func` is the lower-case canonical name; ORDER BY inside (array_agg, string_agg) in `order`."""

    name: str
    func: str
    args: tuple[Expr, ...]
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[SortKey, ...] = ()
    ignore_nulls: bool = False


@dataclass(frozen=True)
class SortKey:
    expr: Expr
    desc: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Session:
    """Per group key: rows at most `gap` apart share a session, whose bounds are [first, last + gap)."""

    time: Expr
    gap: Interval
    start: str
    end: str


class Mode(Enum):
    """When an aggregate speaks."""

    CHANGES = "changes"  # retract the old row, assert the new one, each epoch
    CLOSE = "close"  # assert once, when the window closes; append-only


@dataclass(frozen=True)
class Aggregate(Node):
    """Groups by `keys`; a group exists while its rows' weights sum to more than zero (without keys: always).

    `window_end` names the key that holds the end of the group's window: such a group closes, and its state goes, when
    window_end + lateness ≤ watermark; rows for a closed group are late. With `session` the window is built here.
    Output columns: keys, (session bounds), aggregates.
    """

    child: Node
    keys: tuple[Named, ...]
    aggs: tuple[AggCall, ...]
    mode: Mode = Mode.CHANGES
    window_end: str | None = None
    session: Session | None = None
    lateness_ms: int = 0
    late_to: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        bounds = (self.session.start, self.session.end) if self.session else ()
        return tuple(k.name for k in self.keys) + bounds + tuple(a.name for a in self.aggs)

    @property
    def changelog(self) -> bool:
        return self.mode is Mode.CHANGES

    @property
    def windowed(self) -> bool:
        return self.window_end is not None or self.session is not None

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        if not self.windowed:
            return ()
        # Where nothing below is late the lag already says how long rows are waited for.
        late = 0 if self.child.punctual else self.lateness_ms
        lag = {t.column: t.lag_ms + late for t in self.child.times}
        out = [TimeAttr(k.name, lag[k.expr.column]) for k in self.keys if k.expr.column in lag]
        if self.session and self.session.time.column in lag:
            base = lag[self.session.time.column]
            out.append(TimeAttr(self.session.end, base))
        return tuple(out)

    @property
    def window_ends(self) -> frozenset[str]:
        if self.session:
            return frozenset((self.session.end,))
        return frozenset(k.name for k in self.keys if k.expr.column in self.child.window_ends)

    @property
    def outlived(self) -> bool:
        """True if rows can be taken out again after their window has closed, and the result has to follow."""
        below = self.child.walk() if self.mode is Mode.CHANGES and self.child.changelog else ()
        return any(isinstance(n, TemporalFilter) and n.exit_ms is not None for n in below)

    @property
    def waits(self) -> bool:
        return self.mode is Mode.CLOSE or self.child.waits

    @property
    def punctual(self) -> bool:
        return self.mode is Mode.CLOSE


@dataclass(frozen=True)
class Extremes(Node):
    """The rows whose `value` is the largest (`least`: the smallest) of all rows with the same `keys`, once, when their window closes.

    All rows that share the extreme come out. NULL is none; a NaN is the largest number. `keys` are columns, and one of them is `window_end`,
    as in Aggregate. `inside` are times of a row that lie in its window, whose length is `size_ms`.
    """

    child: Node
    keys: tuple[str, ...]
    value: Expr
    least: bool
    window_end: str
    lateness_ms: int = 0
    inside: tuple[str, ...] = ()
    size_ms: int = 0

    @property
    def changelog(self) -> bool:
        return False

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        if self.child.punctual:
            return self.child.times
        lag = {t.column: t.lag_ms + self.lateness_ms for t in self.child.times}
        held = tuple(TimeAttr(c, lag[self.window_end] + self.size_ms) for c in self.inside if c in lag)
        return (*held, TimeAttr(self.window_end, lag[self.window_end]))

    @property
    def waits(self) -> bool:
        return True

    @property
    def punctual(self) -> bool:
        return True


@dataclass(frozen=True)
class Distinct(Node):
    """Each row once while its weight is above zero. Append-only in, append-only out."""

    child: Node


@dataclass(frozen=True)
class TemporalFilter(Node):
    """A row is present while `enter ≤ now < exit`, now being the watermark floored to the second (epoch ms; either may be None)."""

    child: Node
    enter_ms: Expr | None
    exit_ms: Expr | None

    @property
    def changelog(self) -> bool:
        return True


@dataclass(frozen=True)
class Union(Node):
    """UNION ALL; children have the same number of columns, named after the first child's."""

    inputs: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def columns(self) -> tuple[str, ...]:
        return self.inputs[0].columns

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        first, *rest = self.inputs
        out = []
        for t in first.times:
            i = first.columns.index(t.column)
            lags = [t.lag_ms] + [next((u.lag_ms for u in n.times if u.column == n.columns[i]), -1) for n in rest]
            if -1 not in lags:
                out.append(TimeAttr(t.column, max(lags)))
        return tuple(out)

    @property
    def window_ends(self) -> frozenset[str]:
        every = [{i for i, c in enumerate(n.columns) if c in n.window_ends} for n in self.inputs]
        return frozenset(self.columns[i] for i in set.intersection(*every))


@dataclass(frozen=True)
class Recursive(Node):
    """r = left UNION [ALL] step(r), at its fixpoint; `names` are the columns of r.

    A step takes each pair of a row of r and a row of `right` with equal keys (NULL keys match nothing) that fulfils `residual`, and
    makes a row of `outputs` of it. Keys on the left, `residual` and `outputs` are over `names` (and the columns of `right`).
    `everything`: UNION ALL. A row that would take more than `max_depth` steps is an error.
    """

    left: Node
    right: Node
    names: tuple[str, ...]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None
    outputs: tuple[Expr, ...]
    everything: bool
    max_depth: int

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def changelog(self) -> bool:
        return True

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        return ()


SetKind = Literal["except", "except all", "intersect", "intersect all"]


@dataclass(frozen=True)
class SetOp(Node):
    kind: SetKind
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns

    @property
    def changelog(self) -> bool:
        return True


@dataclass(frozen=True)
class TopN(Node):
    """Per partition the rows at positions [offset, offset + limit) of the order; ties are broken by the whole row.

    With `rank` the limit is on that function's value (offset is 0), and `rank_name` names the column that holds it;
    `rank_name` None: the value is not wanted. `row_number` positions rows as the plain form does.
    """

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0
    rank: Literal["row_number", "rank", "dense_rank"] | None = None
    rank_name: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns if self.rank_name is None else (*self.child.columns, self.rank_name)

    @property
    def changelog(self) -> bool:
        return True


@dataclass(frozen=True)
class Frame:
    """ROWS or RANGE between two bounds; None is unbounded, negative is preceding. RANGE bounds are numbers or micros."""

    unit: Literal["rows", "range"]
    start: int | float | None
    end: int | float | None


@dataclass(frozen=True)
class WindowCall:
    name: str
    func: str
    args: tuple[Expr, ...]
    frame: Frame | None = None
    ignore_nulls: bool = False


@dataclass(frozen=True)
class Analytic(Node):
    """Analytic functions that share one PARTITION BY / ORDER BY."""

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + tuple(c.name for c in self.calls)

    @property
    def changelog(self) -> bool:
        return True


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "mark"]


@dataclass(frozen=True)
class Join(Node):
    """Equi-join with an optional residual. `left_keys[i] = right_keys[i]`; NULL keys match nothing.

    `null_safe` marks the positions that compare with `<=>`. `time_bound`: see IntervalBound. `ttl_ms`: a row that has not changed for
    that long is forgotten, and matches nothing any more. A mark join gives every left row and, in the BOOLEAN column `mark`, whether it has
    a match.
    """

    left: Node
    right: Node
    kind: JoinKind
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None = None
    null_safe: frozenset[int] = frozenset()
    time_bound: IntervalBound | None = None
    ttl_ms: int | None = None
    mark: str | None = None

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[str, ...]:
        if self.kind in ("semi", "anti"):
            return self.left.columns
        if self.mark is not None:
            return (*self.left.columns, self.mark)
        return self.left.columns + self.right.columns

    @property
    def changelog(self) -> bool:
        inputs = self.left.changelog or self.right.changelog
        if self.time_bound is not None:
            return inputs
        return inputs or self.kind not in ("inner", "semi")

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        """A regular join lets old rows out at any time; a time bound says how old at most."""
        bound = self.time_bound
        if bound is None:
            return ()
        lag = {t.column: t.lag_ms for t in (*self.left.times, *self.right.times)}
        left, right = bound.left_time.column, bound.right_time.column
        if left not in lag or right not in lag:
            return ()
        out = [
            TimeAttr(left, max(lag[left], lag[right] + max(0, bound.upper_ms))),
            TimeAttr(right, max(lag[right], lag[left] + max(0, -bound.lower_ms))),
        ]
        return tuple(t for t in out if t.column in self.columns)

    @property
    def waits(self) -> bool:
        """A row that an outer or anti join keeps comes out when no match can come any more."""
        alone = self.time_bound is not None and self.kind not in ("inner", "semi")
        return alone or self.left.waits or self.right.waits

    @property
    def punctual(self) -> bool:
        return self.kind in ("inner", "semi") and self.left.punctual and self.right.punctual


@dataclass(frozen=True)
class IntervalBound:
    """right time − left time lies in [lower_ms, upper_ms]; unmatched outer rows come out when the watermark has passed."""

    left_time: Expr
    right_time: Expr
    lower_ms: int
    upper_ms: int


class _KeyedProbe:
    """What joins that look a right row up for each left row share: left rows decide what comes out, once each."""

    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns + self.right.columns

    @property
    def changelog(self) -> bool:
        return self.left.changelog

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        return self.left.times

    @property
    def waits(self) -> bool:
        return self.left.waits

    @property
    def punctual(self) -> bool:
        return self.left.punctual


@dataclass(frozen=True)
class LookupJoin(_KeyedProbe, Node):
    """Each left row with the row of a lookup table (a Scan) that matches when it arrives; later changes of the table do not count.

    The keys hold the table's whole key. `on_demand`: what is not known is fetched from the table's source.
    """

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None = None
    on_demand: bool = False


@dataclass(frozen=True)
class AsofJoin(_KeyedProbe, Node):
    """Each left row with the one right row of its key that is nearest in time.

    backward: the latest with right ≤ left (< if `strict`); forward: the earliest with right ≥ left (>); nearest: the
    smallest distance, the earlier row on a tie. Beyond `tolerance_ms` nothing matches; a row without a match has NULLs (left) or
    is dropped (inner). `eager`: answers on arrival; otherwise when the right side's watermark has passed.
    """

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    left_time: Expr
    right_time: Expr
    direction: Literal["backward", "forward", "nearest"]
    strict: bool = False
    tolerance_ms: int | None = None
    eager: bool = False

    @property
    def waits(self) -> bool:
        return not self.eager or self.left.waits

    @property
    def punctual(self) -> bool:
        return self.eager and self.left.punctual


@dataclass(frozen=True)
class TemporalJoin(_KeyedProbe, Node):
    """Each left row with the right row of its key whose `right_time` is the largest ≤ `left_time`: the version valid then."""

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    left_time: Expr
    right_time: Expr


@dataclass(frozen=True)
class ProbeJoin(_KeyedProbe, Node):
    """Each left row once per offset, with the latest right row of its key at `left_time + offset` (NULLs if there is none).

    `offset_ms` (BIGINT) and `probe_ts` (the type of `left_time`) name two more output columns. An answer comes when the watermark has
    reached its probe time.
    """

    left: Node
    right: Node
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    left_time: Expr
    right_time: Expr
    offsets: tuple[int, ...]
    offset_ms: str
    probe_ts: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.left.columns, *self.right.columns, self.offset_ms, self.probe_ts)

    @property
    def times(self) -> tuple[TimeAttr, ...]:
        later = max(0, *self.offsets)
        return tuple(TimeAttr(t.column, t.lag_ms + later) for t in self.left.times)

    @property
    def waits(self) -> bool:
        return True

    @property
    def punctual(self) -> bool:
        return False


@dataclass(frozen=True)
class Emit:
    """The EMIT clause of a stream or view."""

    kind: Literal["append", "changes", "update", "close", "every"] = "append"
    every: Interval | None = None


@dataclass(frozen=True)
class Query:
    """A bound SELECT: what a stream, view, sink or subscription maintains. `names` are the output columns as users see them."""

    root: Node
    names: tuple[str, ...]
    emit: Emit = field(default_factory=Emit)
