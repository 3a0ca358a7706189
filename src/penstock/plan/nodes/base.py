"""What all nodes share: expressions, lengths of time, and what a node tells of its output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from penstock.plan.room import with_room


@dataclass(frozen=True, eq=False)
class Expr:
    """A Spark SQL expression over internal column names. Equality is by text."""

    node: exp.Expression

    def sql(self) -> str:
        return with_room(lambda: self.node.sql(dialect="spark"))

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
class SortKey:
    expr: Expr
    desc: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Node:
    """What a node tells of its output is computed once: each follows from what the nodes below tell."""

    @property
    def children(self) -> tuple[Node, ...]:
        child = getattr(self, "child", None)
        return (child,) if child is not None else ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Internal names of the output columns, in order."""
        return self.children[0].columns

    @cached_property
    def changelog(self) -> bool:
        """True if rows may be retracted: the output has a `__weight` column that can be negative."""
        return any(c.changelog for c in self.children)

    @cached_property
    def times(self) -> tuple[TimeAttr, ...]:
        """Event-time columns of the output."""
        return tuple(t for c in self.children for t in c.times if t.column in self.columns)

    @cached_property
    def window_ends(self) -> frozenset[str]:
        """Columns that hold the end of a window whose rows come no later than the watermark gets there (less the column's lag)."""
        return frozenset(e for c in self.children for e in c.window_ends if e in self.columns)

    @cached_property
    def window_keys(self) -> frozenset[str]:
        """Columns each of which tells the window of a row, where all rows of a window come in one epoch, as it closes."""
        return frozenset()

    @cached_property
    def waits(self) -> bool:
        """True if rows may come out when the watermark has passed their time."""
        return any(c.waits for c in self.children)

    @cached_property
    def punctual(self) -> bool:
        """True if every row comes out in the epoch in which the watermark passes its time (plus lag): none before, none late."""
        return bool(self.children) and all(c.punctual for c in self.children)

    def walk(self) -> Iterator[Node]:
        yield self
        for c in self.children:
            yield from c.walk()
