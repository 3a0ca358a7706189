"""Groups of rows, and rows as members of a set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import ClassVar, Literal, Self

from penstock.plan.functions import AggregateFunction, Keeps, OfNothing, Path, aggregate
from penstock.plan.nodes.base import (
    Compared,
    Expr,
    Interval,
    Named,
    Node,
    Reads,
    SortKey,
    TimeAttr,
    known_types,
    same_columns,
    shared_columns,
    shared_types,
)
from penstock.plan.nodes.cost import Cost
from penstock.plan.nodes.linear import WindowAssign
from penstock.plan.nodes.text import arguments_text, interval_text, named_text, order_text, sql_text


@dataclass(frozen=True)
class AggCall:
    """One aggregate call. `func` is the lower-case canonical name; `order` is its ORDER BY (array_agg, string_agg).

    `recomputed`: there is no incremental form; Spark's own implementation computes the value from all rows of a changed group.
    """

    column_names: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    func: str
    args: tuple[Expr, ...]
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[SortKey, ...] = ()
    ignore_nulls: bool = False
    recomputed: bool = False

    @property
    def function(self) -> AggregateFunction:
        return aggregate(self.func)

    def __str__(self) -> str:
        args = arguments_text(self.func, self.args)
        text = f"{self.func}({'DISTINCT ' if self.distinct else ''}{args}{order_text(self.order)})"
        if self.ignore_nulls:
            text += " ignore nulls"
        if self.filter:
            text += f" filter ({sql_text(self.filter)})"
        return f"{text} AS {self.name}"

    @property
    def of_nothing(self) -> OfNothing:
        """Its value over no rows. Only Spark knows it for a call with more arguments than the incremental form."""
        other = self.recomputed and self.function.path is not Path.RECOMPUTED
        return OfNothing.UNKNOWN if other else self.function.of_nothing


@dataclass(frozen=True)
class SessionWindow:
    """Per group key: rows at most `gap` apart share a session, whose bounds are [first, last + gap)."""

    column_names: ClassVar[tuple[str, ...]] = ("start", "end")

    time: Expr
    gap: Interval
    start: str
    end: str


class EmitMode(Enum):
    """When an aggregate emits."""

    CHANGES = "changes"  # retract the old row, assert the new one, each epoch
    CLOSE = "close"  # assert once, when the window closes; append-only


@dataclass(frozen=True)
class TemporalFilter(Node):
    """A row is present while `enter ≤ now < exit`. `now` is the watermark floored to the second, in Unix ms; either bound may be None."""

    reads: ClassVar[Reads] = Reads.STORED
    column_names: ClassVar[tuple[str, ...]] = ()

    child: Node
    enter_ms: Expr | None
    exit_ms: Expr | None

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return (same_columns(self.columns),)

    def described(self) -> str:
        enter = f"{sql_text(self.enter_ms)} ≤ " if self.enter_ms else ""
        leave = f" < {sql_text(self.exit_ms)}" if self.exit_ms else ""
        return f"TemporalFilter {enter}now{leave}"

    @property
    def compared(self) -> Compared:
        return Compared()

    @property
    def cost(self) -> Cost:
        return Cost("rows that will still enter or leave", "O(diff · log n)")

    @cached_property
    def changelog(self) -> bool:
        return True


@dataclass(frozen=True)
class Aggregate(Node):
    """Groups by `keys`; a group exists while its rows' weights sum to more than zero (without keys: always).

    `window_end` names the key that holds the end of the group's window. The group closes, and its state is dropped, when
    window_end + lateness ≤ watermark; rows for a closed group are late. With `session`, this node builds the window.
    Output columns: keys, (session bounds), aggregates.
    """

    reads: ClassVar[Reads] = Reads.OWN
    column_names: ClassVar[tuple[str, ...]] = ("window_end",)

    child: Node
    keys: tuple[Named, ...]
    aggs: tuple[AggCall, ...]
    mode: EmitMode = EmitMode.CHANGES
    window_end: str | None = None
    session: SessionWindow | None = None
    lateness_ms: int = 0
    late_to: str | None = None

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        """None with late rows, which are passed on for all keys."""
        return ({k.name: k.expr for k in self.keys} if self.late_to is None else {},)

    def described(self) -> str:
        parts = [f"Aggregate [{', '.join(map(str, self.aggs))}]"]
        if self.keys:
            parts.append(f"by [{named_text(self.keys)}]")
        if self.session:
            s = self.session
            parts.append(f"session({sql_text(s.time)}, {interval_text(s.gap)}) → [{s.start}, {s.end}]")
        if self.window_end:
            parts.append(f"closes at {self.window_end}")
        if self.lateness_ms:
            parts.append(f"lateness {self.lateness_ms}ms")
        if self.late_to:
            parts.append(f"late to {self.late_to}")
        return " ".join([*parts, self.mode.value])

    @property
    def compared(self) -> Compared:
        return Compared("GROUP BY", tuple(k.name for k in self.keys))

    @property
    def cost(self) -> Cost:
        if self.session is not None:
            held = "the rows of open sessions" if self.child.changelog else "the open sessions"
            return Cost(f"{held} of each key", "O(sessions of the key)")
        until = " until its window closes" if self.window_end is not None and self.mode is EmitMode.CLOSE else ""
        group = f"a row per group{until}" if self.keys else "one row"
        values = {Keeps.CANDIDATES, Keeps.DIFFERENT} if self.child.changelog else set()
        if self.mode is EmitMode.CHANGES:
            values.add(Keeps.DIFFERENT)
        whole = [a for a in self.aggs if a.recomputed or (a.function.keeps is Keeps.WHOLE and not a.distinct)]
        ordered = [a for a in self.aggs if a not in whole and (a.distinct or a.function.keeps in values)]
        held = f"; the values of {', '.join(_kept(a) for a in (*whole, *ordered))}" if whole or ordered else ""
        return Cost(group + held, "O(group)" if whole else "O(diff · log n)" if ordered else "O(diff)")

    @cached_property
    def used(self) -> frozenset[str]:
        """With late rows all columns, because late rows are passed on unchanged."""
        late = frozenset(self.child.columns) if self.late_to is not None else frozenset()
        return super().used | late

    def narrowed(self, need: frozenset[str]) -> Node:
        return replace(self, aggs=tuple(a for a in self.aggs if a.name in need))

    @property
    def title(self) -> str:
        keys = [sql_text(k.expr).rpartition("$")[2] for k in self.keys]
        return f"the aggregate by {', '.join(keys) or 'nothing'}"

    def stored(self) -> Node:
        """The groups are the same for any aggregates."""
        return replace(self, aggs=())

    def difference(self, other: Self) -> str | None:
        if len(other.keys) != len(self.keys):
            return f"the old one has {len(other.keys)} key{'s' if len(other.keys) != 1 else ''}"
        windows = [(a.mode, a.window_end, a.session, a.lateness_ms) for a in (self, other)]
        return "its windows, or when it emits, are different" if windows[0] != windows[1] else None

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        return known_types(self.keys, self.child.column_types)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        bounds = (self.session.start, self.session.end) if self.session else ()
        return tuple(k.name for k in self.keys) + bounds + tuple(a.name for a in self.aggs)

    @cached_property
    def changelog(self) -> bool:
        return self.mode is EmitMode.CHANGES

    @property
    def windowed(self) -> bool:
        return self.window_end is not None or self.session is not None

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        if not self.windowed:
            return ()
        # If no input row is late, the lag already includes the lateness.
        late = 0 if self.child.punctual else self.lateness_ms
        lag = {t.column: t.lag_ms + late for t in self.child.times}
        out = [TimeAttr(k.name, lag[k.expr.column]) for k in self.keys if k.expr.column in lag]
        if self.session and self.session.time.column in lag:
            base = lag[self.session.time.column]
            out.append(TimeAttr(self.session.end, base))
        return tuple(out)

    @cached_property
    def window_ends(self) -> frozenset[str]:
        if self.session:
            return frozenset((self.session.end,))
        below = self.child.window_ends
        return frozenset(k.name for k in self.keys if k.expr.column in below)

    @cached_property
    def window_keys(self) -> frozenset[str]:
        if self.mode is not EmitMode.CLOSE:
            return frozenset()
        if self.session:
            return frozenset((self.session.end,))
        end = next(k.expr.column for k in self.keys if k.name == self.window_end)
        # CUMULATE windows share their start.
        assigned = {
            n.start for n in self.child.walk() if isinstance(n, WindowAssign) and n.end == end and n.kind != "cumulate"
        }
        keyed = {end} | assigned | self.child.window_keys
        return frozenset(k.name for k in self.keys if k.expr.column in keyed)

    @property
    def outlived(self) -> bool:
        """True if rows can be retracted after their window has closed, so that the result must change."""
        below = self.child.walk() if self.mode is EmitMode.CHANGES and self.child.changelog else ()
        return any(isinstance(n, TemporalFilter) and n.exit_ms is not None for n in below)

    @cached_property
    def waits(self) -> bool:
        return self.mode is EmitMode.CLOSE or self.child.waits

    @cached_property
    def punctual(self) -> bool:
        return self.mode is EmitMode.CLOSE


def _kept(call: AggCall) -> str:
    return f"{call.func}{'(distinct)' if call.distinct else ''}{' (recomputed by Spark)' if call.recomputed else ''}"


@dataclass(frozen=True)
class Extremes(Node):
    """Emits the rows with the largest (`least`: smallest) `value` among the rows with equal `keys`, once, when their window closes.

    All rows that tie for the extreme are emitted. NULL is never an extreme; NaN is the largest number. `keys` are columns, and one of them
    is `window_end`, as in Aggregate. `inside` are time columns whose values lie in the row's window, whose length is `size_ms`.
    """

    reads: ClassVar[Reads] = Reads.STORED
    column_names: ClassVar[tuple[str, ...]] = ("keys", "window_end", "inside")

    child: Node
    keys: tuple[str, ...]
    value: Expr
    least: bool
    window_end: str
    lateness_ms: int = 0
    inside: tuple[str, ...] = ()
    size_ms: int = 0

    def described(self) -> str:
        most = "least" if self.least else "greatest"
        late = f" lateness {self.lateness_ms}ms" if self.lateness_ms else ""
        return f"Extremes {most} {sql_text(self.value)} by [{', '.join(self.keys)}] closes at {self.window_end}{late}"

    @property
    def compared(self) -> Compared:
        return Compared("ORDER BY", self.keys, (self.value,))

    @property
    def cost(self) -> Cost:
        return Cost("the extreme rows per group until its window closes", "O(diff)")

    @cached_property
    def used(self) -> frozenset[str]:
        return super().used | frozenset(self.keys)

    @cached_property
    def changelog(self) -> bool:
        return False

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        if self.child.punctual:
            return self.child.times
        lag = {t.column: t.lag_ms + self.lateness_ms for t in self.child.times}
        held = tuple(TimeAttr(c, lag[self.window_end] + self.size_ms) for c in self.inside if c in lag)
        return (*held, TimeAttr(self.window_end, lag[self.window_end]))

    @cached_property
    def window_keys(self) -> frozenset[str]:
        return self.child.window_keys or frozenset((self.window_end,))

    @cached_property
    def waits(self) -> bool:
        return True

    @cached_property
    def punctual(self) -> bool:
        return True


@dataclass(frozen=True)
class Distinct(Node):
    """Each row once while its weight is above zero. Append-only in, append-only out."""

    reads: ClassVar[Reads] = Reads.WHOLE
    column_names: ClassVar[tuple[str, ...]] = ()

    child: Node

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return (same_columns(self.columns),)

    def described(self) -> str:
        return "Distinct"

    @property
    def compared(self) -> Compared:
        return Compared("DISTINCT", self.columns)

    @property
    def cost(self) -> Cost:
        if self.at_once:
            return Cost(None, "O(diff)")
        return Cost("a count of each row" if self.child.changelog else "each row once", "O(diff)")

    @cached_property
    def at_once(self) -> bool:
        """True if equal rows all arrive in one epoch, so that no state is needed."""
        return bool(self.child.window_keys)

    @cached_property
    def window_keys(self) -> frozenset[str]:
        return self.child.window_keys


SetKind = Literal["except", "except all", "intersect", "intersect all"]


@dataclass(frozen=True)
class SetOp(Node):
    reads: ClassVar[Reads] = Reads.WHOLE
    column_names: ClassVar[tuple[str, ...]] = ()

    kind: SetKind
    left: Node
    right: Node

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return shared_columns(self)

    def described(self) -> str:
        return self.kind.capitalize()

    @property
    def compared(self) -> Compared:
        return Compared(self.kind.upper(), self.columns)

    @property
    def cost(self) -> Cost:
        return Cost("two counts of each row", "O(diff)")

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        return shared_types(self.children)

    @cached_property
    def changelog(self) -> bool:
        return True
