"""Rows in an order: Top-N and analytic functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from penstock.plan.nodes.base import Expr, Node, SortKey


class _Partitioned:
    """What nodes over ordered partitions share: where a partition lies in a window that closes, all its rows come in one epoch."""

    child: Node
    partition: tuple[Expr, ...]

    @cached_property
    def at_once(self) -> bool:
        """True if each partition is there as a whole in one epoch, and never again: nothing is kept, and nothing is taken back."""
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

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns if self.rank_name is None else (*self.child.columns, self.rank_name)


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
class Analytic(_Partitioned, Node):
    """Analytic functions that share one PARTITION BY / ORDER BY."""

    child: Node
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + tuple(c.name for c in self.calls)
