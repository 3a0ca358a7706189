"""Rows in an order: Top-N and analytic functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from penstock.plan.nodes.base import Expr, Node, SortKey


class _Partitioned:
    """Base of nodes over ordered partitions. If a partition belongs to a closing window, all its rows arrive in one epoch."""

    child: Node
    partition: tuple[Expr, ...]

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

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0
    rank: Literal["row_number", "rank", "dense_rank"] | None = None
    rank_name: str | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns if self.rank_name is None else (*self.child.columns, self.rank_name)


@dataclass(frozen=True)
class WindowFrame:
    """ROWS or RANGE between two bounds; None is unbounded, negative is preceding. RANGE bounds are numbers or micros."""

    unit: Literal["rows", "range"]
    start: int | float | None
    end: int | float | None


@dataclass(frozen=True)
class WindowCall:
    name: str
    func: str
    args: tuple[Expr, ...]
    frame: WindowFrame | None = None
    ignore_nulls: bool = False


@dataclass(frozen=True)
class Analytic(_Partitioned, Node):
    """Analytic functions that share one PARTITION BY / ORDER BY."""

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + tuple(c.name for c in self.calls)
