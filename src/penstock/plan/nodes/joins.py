"""Two inputs: joins of all kinds, and recursion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from penstock.plan.nodes.base import Expr, Node, TimeAttr

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

    @cached_property
    def columns(self) -> tuple[str, ...]:
        if self.kind in ("semi", "anti"):
            return self.left.columns
        if self.mark is not None:
            return (*self.left.columns, self.mark)
        return self.left.columns + self.right.columns

    @cached_property
    def changelog(self) -> bool:
        inputs = self.left.changelog or self.right.changelog
        if self.time_bound is not None:
            return inputs
        return inputs or self.kind not in ("inner", "semi")

    @cached_property
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

    @cached_property
    def waits(self) -> bool:
        """A row that an outer or anti join keeps comes out when no match can come any more."""
        alone = self.time_bound is not None and self.kind not in ("inner", "semi")
        return alone or self.left.waits or self.right.waits

    @cached_property
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

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns + self.right.columns

    @cached_property
    def changelog(self) -> bool:
        return self.left.changelog

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        return self.left.times

    @cached_property
    def waits(self) -> bool:
        return self.left.waits

    @cached_property
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

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        """A left row that looks forward waits for a right row, `tolerance_ms` at most."""
        if self.eager or self.direction == "backward":
            return self.left.times
        if self.tolerance_ms is None:
            return ()
        return tuple(TimeAttr(t.column, t.lag_ms + self.tolerance_ms) for t in self.left.times)

    @cached_property
    def waits(self) -> bool:
        return not self.eager or self.left.waits

    @cached_property
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

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.left.columns, *self.right.columns, self.offset_ms, self.probe_ts)

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        later = max(0, *self.offsets)
        return tuple(TimeAttr(t.column, t.lag_ms + later) for t in self.left.times)

    @cached_property
    def waits(self) -> bool:
        return True

    @cached_property
    def punctual(self) -> bool:
        return False


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

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @cached_property
    def changelog(self) -> bool:
        return True

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        return ()
