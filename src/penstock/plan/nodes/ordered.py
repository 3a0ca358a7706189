"""Rows in an order: Top-N and analytic functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

from penstock.plan.nodes.base import Compared, Expr, Node, Reads, SortKey, same_columns
from penstock.plan.nodes.cost import Cost
from penstock.plan.nodes.text import arguments_text, order_text, partition_text


class _Partitioned:
    """Base of nodes over ordered partitions. If a partition belongs to a closing window, all its rows arrive in one epoch."""

    reads: ClassVar[Reads] = Reads.STORED

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        return (same_columns(p.column for p in self.partition if p.column is not None),)

    @property
    def compared(self) -> Compared:
        return Compared("ORDER BY", expressions=(*self.partition, *(k.expr for k in self.order)))

    @property
    def cost(self) -> Cost:
        return Cost(None, "O(partition)") if self.at_once else self._cost()

    def _cost(self) -> Cost:
        """The cost if the node keeps state."""
        raise NotImplementedError

    @cached_property
    def at_once(self) -> bool:
        """True if each partition arrives complete in one epoch: there is no state, and nothing is retracted."""
        below = self.child.window_keys
        return any(e.column in below for e in self.partition)

    @cached_property
    def changelog(self) -> bool:
        return not self.at_once

    @cached_property
    def window_keys(self) -> frozenset[str]:
        return self.child.window_keys if self.at_once else frozenset()


@dataclass(frozen=True)
class TopN(_Partitioned, Node):
    """Per partition, the rows at positions [offset, offset + limit) of the order; ties are broken by the whole row.

    With `rank`, the limit applies to that function's value (offset is 0), and `rank_name` is the output column for the value;
    None: the value is not needed. `row_number` numbers rows as the plain form does.
    """

    column_names: ClassVar[tuple[str, ...]] = ("rank_name",)

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0
    rank: Literal["row_number", "rank", "dense_rank"] | None = None
    rank_name: str | None = None

    def described(self) -> str:
        rank = f" {self.rank}" + (f" → {self.rank_name}" if self.rank_name else "") if self.rank else ""
        offset = f" offset {self.offset}" if self.offset else ""
        rows = f"{partition_text(self.partition)}{order_text(self.order)}"
        return f"TopN{rows} limit {self.limit}{offset}{rank}"

    def _cost(self) -> Cost:
        where = " of each partition" if self.partition else ""
        if self.limit is None:
            return Cost(f"all rows{where}, in order", "O(diff · log n)")
        reach = self.offset + self.limit
        kept = f"all rows{where}, in order" if self.child.changelog else f"the first {reach} rows{where}"
        return Cost(kept, f"O(diff · log n + {reach})")

    def narrowed(self, need: frozenset[str]) -> Node:
        return self if self.rank_name in need else replace(self, rank_name=None)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns if self.rank_name is None else (*self.child.columns, self.rank_name)


@dataclass(frozen=True)
class WindowFrame:
    """ROWS, RANGE or GROUPS between two bounds; None is unbounded, negative is preceding. RANGE bounds are numbers or micros.

    `exclude`: rows that are excluded from the frame: the row itself, or its peers with it (group) or without it (ties).
    """

    unit: Literal["rows", "range", "groups"]
    start: int | float | None
    end: int | float | None
    exclude: Literal["current row", "group", "ties"] | None = None

    def __str__(self) -> str:
        def edge(value: int | float | None, unbounded: str) -> str:
            return unbounded if value is None else "0" if value == 0 else f"{value:+}"

        without = f" without {self.exclude}" if self.exclude else ""
        return f"{self.unit}[{edge(self.start, '-∞')}..{edge(self.end, '+∞')}]{without}"


@dataclass(frozen=True)
class WindowCall:
    column_names: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    func: str
    args: tuple[Expr, ...]
    frame: WindowFrame | None = None
    ignore_nulls: bool = False

    def __str__(self) -> str:
        nulls = " ignore nulls" if self.ignore_nulls else ""
        frame = f" {self.frame}" if self.frame else ""
        return f"{self.func}({arguments_text(self.func, self.args)}){nulls}{frame} AS {self.name}"


@dataclass(frozen=True)
class Analytic(_Partitioned, Node):
    """Analytic functions that share one PARTITION BY / ORDER BY."""

    column_names: ClassVar[tuple[str, ...]] = ()

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    def described(self) -> str:
        rows = f"{partition_text(self.partition)}{order_text(self.order)}"
        return f"Analytic [{', '.join(map(str, self.calls))}]{rows}"

    def _cost(self) -> Cost:
        return Cost("the rows of each partition with their results", "O(partition)")

    def narrowed(self, need: frozenset[str]) -> Node:
        calls = tuple(c for c in self.calls if c.name in need)
        return replace(self, calls=calls) if calls else self.child

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + tuple(c.name for c in self.calls)
