"""Groups of rows, and rows as members of a set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

from penstock.plan.functions import AggregateFunction, OfNothing, Path, aggregate
from penstock.plan.nodes.base import Expr, Interval, Named, Node, SortKey, TimeAttr
from penstock.plan.nodes.linear import WindowAssign


@dataclass(frozen=True)
class AggCall:
    """One aggregate call. `func` is the lower-case canonical name; `order` is its ORDER BY (array_agg, string_agg).

    `recomputed`: there is no incremental form. Spark's own implementation computes the value from all rows of a group that has changed.
    """

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

    @property
    def of_nothing(self) -> OfNothing:
        """Its value over no rows. Only Spark knows that of a form with more arguments than the incremental one."""
        other = self.recomputed and self.function.path is not Path.RECOMPUTED
        return OfNothing.UNKNOWN if other else self.function.of_nothing


@dataclass(frozen=True)
class SessionWindow:
    """Per group key: rows at most `gap` apart share a session, whose bounds are [first, last + gap)."""

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

    child: Node
    enter_ms: Expr | None
    exit_ms: Expr | None

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

    child: Node
    keys: tuple[Named, ...]
    aggs: tuple[AggCall, ...]
    mode: EmitMode = EmitMode.CHANGES
    window_end: str | None = None
    session: SessionWindow | None = None
    lateness_ms: int = 0
    late_to: str | None = None

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
        # If no input row is late, the lag already includes the wait for them.
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
        # CUMULATE windows share their start with others.
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


@dataclass(frozen=True)
class Extremes(Node):
    """Emits the rows with the largest (`least`: smallest) `value` among the rows with equal `keys`, once, when their window closes.

    All rows that tie for the extreme are emitted. NULL is never an extreme; NaN is the largest number. `keys` are columns, and one of them
    is `window_end`, as in Aggregate. `inside` are time columns whose values lie in the row's window, whose length is `size_ms`.
    """

    child: Node
    keys: tuple[str, ...]
    value: Expr
    least: bool
    window_end: str
    lateness_ms: int = 0
    inside: tuple[str, ...] = ()
    size_ms: int = 0

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

    child: Node

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
    kind: SetKind
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns

    @cached_property
    def changelog(self) -> bool:
        return True
