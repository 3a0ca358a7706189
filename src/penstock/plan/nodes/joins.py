"""Nodes with two inputs: joins and recursion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from penstock.plan.nodes.base import Compared, Expr, Interval, Need, Node, Reads, TimeAttr, same_columns
from penstock.plan.nodes.cost import Cost
from penstock.plan.nodes.groups import Aggregate
from penstock.plan.nodes.linear import Filter, Project, Values
from penstock.plan.nodes.text import interval_text, keys_text, residual_text, sql_text

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "mark"]


@dataclass(frozen=True)
class Join(Node):
    """Equi-join with an optional residual. `left_keys[i] = right_keys[i]`; NULL keys match nothing.

    `null_safe` holds the key positions compared with `<=>`. `time_bound`: see IntervalBound. `ttl_ms`: a row that has not changed for
    that long expires and no longer matches. A mark join emits every left row, with the BOOLEAN column `mark`: whether it has a match.
    """

    reads: ClassVar[Reads] = Reads.STORED
    column_names: ClassVar[tuple[str, ...]] = ("mark",)

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
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        """None for a side whose rows can be padded with NULLs."""
        left = self.left.columns if self.kind not in ("right", "full") else ()
        right = self.right.columns if self.kind in ("inner", "right") else ()
        return same_columns(left), same_columns(right)

    @property
    def matched(self) -> Mapping[str, str]:
        return _equal_columns(self) if self.kind != "full" else {}

    def described(self) -> str:
        text = f"Join {self.kind} {keys_text(self.left_keys, self.right_keys, self.null_safe)}"
        if self.time_bound:
            b = self.time_bound
            text += f" within {sql_text(b.right_time)} - {sql_text(b.left_time)} in [{b.lower_ms}ms, {b.upper_ms}ms]"
        text += residual_text(self.residual)
        text += f" forgets after {interval_text(Interval(micros=self.ttl_ms * 1000))}" if self.ttl_ms else ""
        return text + (f" → {self.mark}" if self.mark else "")

    @property
    def compared(self) -> Compared:
        return Compared("ON", expressions=self.left_keys)

    @property
    def cost(self) -> Cost:
        if self.keyless and not _single(self.left) and not _single(self.right):
            kept = "until the watermark has passed them" if self.time_bound is not None else "in one partition"
            return Cost(f"rows of both sides {kept}", "O(diff · all rows of the other side)")
        if self.time_bound is not None:
            return Cost("rows of both sides until the watermark has passed them", "O(diff · (log n + matches))")
        return Cost(f"rows of both sides by key{' until they expire' if self.ttl_ms else ''}", "O(diff · matches)")

    @property
    def keyless(self) -> bool:
        """No column takes part in an equality: every row is compared with all rows of the other side, in one partition."""
        return not any(k.refs for k in (*self.left_keys, *self.right_keys))

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
        """A regular join can emit old rows at any time; a time bound limits how old they are."""
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
        """An outer or anti join emits an unmatched row once no match can arrive."""
        alone = self.time_bound is not None and self.kind not in ("inner", "semi")
        return alone or self.left.waits or self.right.waits

    @cached_property
    def punctual(self) -> bool:
        return self.kind in ("inner", "semi") and self.left.punctual and self.right.punctual


@dataclass(frozen=True)
class IntervalBound:
    """right time − left time is in [lower_ms, upper_ms]; unmatched outer rows are emitted when the watermark has passed."""

    left_time: Expr
    right_time: Expr
    lower_ms: int
    upper_ms: int


def _equal_columns(node: Join | AsofJoin | TemporalJoin | ProbeJoin) -> dict[str, str]:
    """The keys that are plain columns of the same type."""
    left, right = node.left.column_types, node.right.column_types
    return {
        a.column: b.column
        for a, b in zip(node.left_keys, node.right_keys, strict=True)
        if a.column is not None and b.column is not None and a.column in left and left[a.column] == right.get(b.column)
    }


def _single(node: Node) -> bool:
    """Whether a side has one row, such as a total."""
    while isinstance(node, Project | Filter):
        node = node.child
    return isinstance(node, Values) or (isinstance(node, Aggregate) and not node.keys)


class _KeyedProbe:
    """Base of joins that look up a right row for each left row. Each left row produces its output once."""

    reads: ClassVar[Reads] = Reads.STORED
    column_names: ClassVar[tuple[str, ...]] = ()

    left: Node
    right: Node
    left_keys: tuple[Expr, ...]

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return same_columns(self.left.columns), {}

    @property
    def compared(self) -> Compared:
        return Compared("ON", expressions=self.left_keys)

    def _answers(self) -> str:
        return ", emitted results" if self.left.changelog else ""

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
    """Each left row with the matching row of a lookup table (a Scan) at its arrival; later changes of the table have no effect.

    The keys include the table's whole key. `on_demand`: rows that are not cached are fetched from the table's source.
    """

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None = None
    on_demand: bool = False

    def described(self) -> str:
        how = " on demand" if self.on_demand else ""
        return f"LookupJoin {self.kind}{how} {keys_text(self.left_keys, self.right_keys)}{residual_text(self.residual)}"

    @property
    def cost(self) -> Cost:
        return Cost("the rows of the lookup table", "O(diff)")


@dataclass(frozen=True)
class AsofJoin(_KeyedProbe, Node):
    """Each left row with the one right row of its key that is nearest in time.

    backward: the latest with right ≤ left (< if `strict`); forward: the earliest with right ≥ left (>); nearest: the
    smallest distance, the earlier row on a tie. Rows further apart than `tolerance_ms` do not match; a row without a match gets NULLs
    (left) or is dropped (inner). `eager`: emits on arrival; otherwise once the right side's watermark has passed.
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
    def matched(self) -> Mapping[str, str]:
        return _equal_columns(self)

    def described(self) -> str:
        tolerance = f" within {self.tolerance_ms}ms" if self.tolerance_ms is not None else ""
        times = f"({sql_text(self.left_time)}, {sql_text(self.right_time)})"
        how = f"{self.direction}{' strict' if self.strict else ''}{times}{tolerance}{' eager' if self.eager else ''}"
        return f"AsofJoin {self.kind} {keys_text(self.left_keys, self.right_keys)} {how}"

    @property
    def cost(self) -> Cost:
        waiting = "" if self.eager else ", pending left rows"
        return Cost(f"right rows that can still be the nearest{waiting}{self._answers()}", "O(diff · log n)")

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        """Forward and nearest: a left row waits up to `tolerance_ms` for a right row."""
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

    @property
    def matched(self) -> Mapping[str, str]:
        return _equal_columns(self)

    def described(self) -> str:
        times = f"({sql_text(self.left_time)}, {sql_text(self.right_time)})"
        return f"TemporalJoin {self.kind} {keys_text(self.left_keys, self.right_keys)} as of {times}"

    @property
    def cost(self) -> Cost:
        return Cost(f"the versions of the right rows{self._answers()}", "O(diff · log n)")


@dataclass(frozen=True)
class ProbeJoin(_KeyedProbe, Node):
    """Each left row once per offset, with the latest right row of its key at `left_time + offset` (NULLs if there is none).

    `offset_ms` (BIGINT) and `probe_ts` (the type of `left_time`) name two more output columns. A row is emitted when the watermark
    reaches its probe time.
    """

    column_names: ClassVar[tuple[str, ...]] = ("offset_ms", "probe_ts")

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
    def matched(self) -> Mapping[str, str]:
        return _equal_columns(self)

    def described(self) -> str:
        times = f"({sql_text(self.left_time)}, {sql_text(self.right_time)})"
        offsets = ", ".join(f"{o}ms" for o in self.offsets[:8]) + (", …" if len(self.offsets) > 8 else "")
        return f"ProbeJoin {keys_text(self.left_keys, self.right_keys)} at {times} + [{offsets}]"

    @property
    def cost(self) -> Cost:
        return Cost("right rows that a probe can still reach, pending left rows", "O(diff · offsets · log n)")

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
    """The fixpoint of r = left UNION [ALL] step(r); `names` are the columns of r.

    A step joins r with `right` on equal keys (NULL keys match nothing) and `residual`, and computes `outputs` for each pair.
    The left keys refer to `names`; `residual` and `outputs` refer to `names` and the columns of `right`.
    `everything`: UNION ALL. A row that would take more than `max_depth` steps is an error.
    """

    reads: ClassVar[Reads] = Reads.OWN
    column_names: ClassVar[tuple[str, ...]] = ("names",)

    left: Node
    right: Node
    names: tuple[str, ...]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None
    outputs: tuple[Expr, ...]
    everything: bool
    max_depth: int

    def described(self) -> str:
        made = ", ".join(sql_text(e) for e in self.outputs)
        kind = "union all" if self.everything else "union"
        step = f"{keys_text(self.left_keys, self.right_keys)}{residual_text(self.residual)}"
        return (
            f"Recursive {kind} [{', '.join(self.names)}] step {step} → [{made}] depth ≤ {self.max_depth}, one partition"
        )

    @property
    def compared(self) -> Compared:
        return Compared("UNION", () if self.everything else self.columns, self.left_keys)

    @property
    def cost(self) -> Cost:
        return Cost("all rows with their derivations, rows of the step's other side", "O(changed rows · matches)")

    def needs(self, need: frozenset[str]) -> tuple[Need, ...]:
        """Rows of r are compared as a whole."""
        return Need.exactly(self.left.columns), Need(self.used & frozenset(self.right.columns))

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        return {}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @cached_property
    def changelog(self) -> bool:
        return True

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        return ()
