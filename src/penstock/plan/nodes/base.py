"""The base of all nodes: expressions, intervals, and the derived properties of a node's output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.room import with_room


@dataclass(frozen=True, eq=False)
class Expr:
    """A Spark SQL expression over internal column names. Equality is by text. The tree is not changed any more."""

    node: exp.Expression

    def sql(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        # Most expressions are columns, and the SQL library copies a tree and builds a generator for each text.
        if isinstance(self.node, exp.Column) and _is_bare(self.node):
            return "`" + self.node.name.replace("`", "``") + "`"
        return with_room(lambda: self.node.sql(dialect=DIALECT))

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


def _is_bare(column: exp.Column) -> bool:
    """Whether the text of a column is its quoted name alone."""
    name = column.this
    quoted = isinstance(name, exp.Identifier) and name.args.get("quoted") and not name.comments
    return bool(quoted) and not column.comments and all(v is None for k, v in column.args.items() if k != "this")


def col(name: str) -> Expr:
    return Expr(exp.Column(this=exp.Identifier(this=name, quoted=True)))


@dataclass(frozen=True)
class Interval:
    """A duration in calendar months or microseconds. At most one of them is not zero."""

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
    """A plan node. Properties of its output are derived from those of its children, and cached."""

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
        """Columns that hold a window end. All rows of the window arrive no later than the watermark reaches it (less the column's lag)."""
        return frozenset(e for c in self.children for e in c.window_ends if e in self.columns)

    @cached_property
    def window_keys(self) -> frozenset[str]:
        """Columns that each identify the window of a row, if all rows of a window arrive in one epoch, when it closes."""
        return frozenset()

    @cached_property
    def waits(self) -> bool:
        """True if rows may be held back until the watermark has passed their time."""
        return any(c.waits for c in self.children)

    @cached_property
    def punctual(self) -> bool:
        """True if every row is emitted in the epoch in which the watermark passes its time (plus lag): none earlier, none later."""
        return bool(self.children) and all(c.punctual for c in self.children)

    def walk(self) -> Iterator[Node]:
        """The node and all nodes below it, each before its children."""
        # A generator per level would pass every node through all the levels above it.
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed(node.children)
