"""The base of all nodes: expressions, intervals, what a node declares, and the derived properties of its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.nodes.cost import LINEAR, Cost
from penstock.plan.room import with_room


@dataclass(frozen=True, eq=False)
class Expr:
    """A Spark SQL expression over internal column names. Equality is by text. The tree must not be changed."""

    node: exp.Expression

    def sql(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        # Fast path: most expressions are columns, and the SQL library copies the tree and builds a generator for each text.
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
    """Whether the text of a column is just its quoted name."""
    name = column.this
    quoted = isinstance(name, exp.Identifier) and name.args.get("quoted") and not name.comments
    return bool(quoted) and not column.comments and all(v is None for k, v in column.args.items() if k != "this")


def col(name: str) -> Expr:
    return Expr(exp.Column(this=exp.Identifier(this=name, quoted=True)))


@dataclass(frozen=True)
class Interval:
    """A duration in calendar months or microseconds. At most one of them is nonzero."""

    months: int = 0
    micros: int = 0


@dataclass(frozen=True)
class Named:
    column_names: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    expr: Expr


@dataclass(frozen=True)
class TimeAttr:
    """A column whose future values are above `watermark - lag_ms`."""

    column_names: ClassVar[tuple[str, ...]] = ("column",)

    column: str
    lag_ms: int = 0


@dataclass(frozen=True)
class SortKey:
    expr: Expr
    desc: bool = False
    nulls_first: bool = True


class Reads(Enum):
    """Which columns of its inputs a node needs."""

    PASSED = auto()
    """Those that its consumers need, and those that its expressions use."""
    STORED = auto()
    """The same and no others: the node stores rows, so a column that only a filter below uses must not enter its state."""
    OWN = auto()
    """Those that its expressions use: all its columns are new."""
    WHOLE = auto()
    """All of them: it compares whole rows."""


@dataclass(frozen=True)
class Need:
    """The columns that a node needs from an input: at least `columns`; with `only` no others; with `order` exactly these, in this order."""

    columns: frozenset[str]
    only: bool = False
    order: tuple[str, ...] | None = None

    @classmethod
    def exactly(cls, names: tuple[str, ...]) -> Need:
        return cls(frozenset(names), order=names)


class Compared(NamedTuple):
    """The values that a node tests for equality or sorts: columns of its output, and expressions. `clause` names the clause to the user."""

    clause: str = ""
    columns: tuple[str, ...] = ()
    expressions: tuple[Expr, ...] = ()


_DECLARED = ("described", "cost", "compared", "reads", "column_names")


@dataclass(frozen=True)
class Node:
    """A plan node. Properties of its output are derived from its children and cached.

    Each class declares its description, its state and cost, the values that it compares, the columns that it reads, and the fields that
    hold column names; pruning, EXPLAIN and plan comparison use only these. Defining a class without a declaration fails, unless it is `abstract`.
    """

    reads: ClassVar[Reads]
    column_names: ClassVar[tuple[str, ...]]
    """Fields with column names: of columns that the node introduces, and of others to which it refers by name. In a pair, the first element is the name."""

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        missing = [d for d in _DECLARED if not any(d in vars(c) for c in cls.__mro__ if c is not Node)]
        if missing and not abstract:
            raise TypeError(f"the plan node {cls.__name__} does not declare {', '.join(missing)}")

    def described(self) -> str:
        """The line of EXPLAIN: the operator and its arguments."""
        raise NotImplementedError

    @property
    def cost(self) -> Cost:
        """The state that the node keeps between epochs, and the cost of one epoch."""
        raise NotImplementedError

    @property
    def compared(self) -> Compared:
        """The compared values. The compiler checks their types, because the kernel, which finds rows by their bytes, would accept any type."""
        raise NotImplementedError

    @cached_property
    def children(self) -> tuple[Node, ...]:
        """The fields that are nodes, or tuples of nodes."""
        return tuple(n for _, nodes in self._inputs for n in nodes)

    def with_children(self, children: Sequence[Node]) -> Self:
        """The node with other children; the node itself if they are the same."""
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        left = iter(children)
        made: dict[str, Any] = {}
        for name, nodes in self._inputs:
            several = isinstance(getattr(self, name), tuple)
            made[name] = tuple(next(left) for _ in nodes) if several else next(left)
        return replace(self, **made)

    @cached_property
    def _inputs(self) -> tuple[tuple[str, tuple[Node, ...]], ...]:
        """The fields that hold children."""
        found = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Node):
                found.append((f.name, (value,)))
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                found.append((f.name, value))
        return tuple(found)

    @cached_property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions of the node itself."""
        found: list[Expr] = []
        stack: list[Any] = [self]
        while stack:
            value = stack.pop()
            if isinstance(value, Expr):
                found.append(value)
            elif isinstance(value, tuple):
                stack.extend(value)
            elif is_dataclass(value) and not isinstance(value, type) and (value is self or not isinstance(value, Node)):
                stack.extend(getattr(value, f.name) for f in fields(value))
        return tuple(found)

    @cached_property
    def used(self) -> frozenset[str]:
        """The columns of its inputs that the node itself reads."""
        return frozenset(r for e in self.expressions for r in e.refs)

    @cached_property
    def introduced(self) -> frozenset[str]:
        """The columns that are not passed on from an input."""
        passed = self.reads in (Reads.PASSED, Reads.STORED)
        return frozenset(self.columns) - frozenset(n for c in self.children if passed for n in c.columns)

    def narrowed(self, need: frozenset[str]) -> Node:
        """The node without the columns that it computes beyond `need`; its child if nothing remains."""
        return self

    def needs(self, need: frozenset[str]) -> tuple[Need, ...]:
        """What the node needs from each child to provide the columns `need`."""
        if self.reads is Reads.WHOLE:
            return tuple(Need.exactly(c.columns) for c in self.children)
        wanted = self.used if self.reads is Reads.OWN else (need - self.introduced) | self.used
        return tuple(Need(wanted, only=self.reads is Reads.STORED) for _ in self.children)

    @property
    def below(self) -> tuple[Mapping[str, Expr], ...]:
        """For each child, the output columns whose filters can be pushed to that child, as expressions over it. None by default."""
        return tuple({} for _ in self.children)

    @property
    def matched(self) -> Mapping[str, str]:
        """For a join: left columns, with the right columns that they equal in every match."""
        return {}

    @property
    def title(self) -> str:
        """The node's name in messages."""
        return f"the operator {type(self).__name__}"

    def stored(self) -> Node:
        """The node without the details that may differ if one query continues the state of another."""
        return self

    def difference(self, other: Self) -> str | None:
        """Why this node cannot continue the state of `other`, if there is a more specific reason than their inputs and expressions."""
        return None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Internal names of the output columns, in order."""
        return self.children[0].columns

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        """Types of the columns that are passed through from storage. Only Spark knows the types of computed columns."""
        return {n: t for child in self.children for n, t in child.column_types.items() if n in self.columns}

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
        """Columns that hold a window end. All rows of a window arrive by the time the watermark reaches its end (less the column's lag)."""
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

    @cached_property
    def stateful(self) -> bool:
        """True if the node or one below it keeps state."""
        return any(not isinstance(n, Linear) for n in self.walk())

    def walk(self) -> Iterator[Node]:
        """The node and all nodes below it, each before its children."""
        # Iterative: a generator per level would pass every node through all levels above it.
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed(node.children)


class Linear(Node, abstract=True):
    """A stateless node, which processes each row on its own."""

    @property
    def cost(self) -> Cost:
        return LINEAR

    @property
    def compared(self) -> Compared:
        return Compared()


def same_columns(names: Iterable[str]) -> dict[str, Expr]:
    return {n: col(n) for n in names}


def known_types(items: Sequence[Named], known: Mapping[str, str]) -> dict[str, str]:
    """The types of items that are columns of a known type."""
    return {i.name: t for i in items if (t := known.get(i.expr.column or "")) is not None}


def shared_columns(node: Node) -> tuple[Mapping[str, Expr], ...]:
    """The columns that have the same type in all inputs, which are matched by position. Others are cast above them."""
    same = {c: i for i, c in enumerate(node.columns) if c in node.column_types}
    return tuple({c: col(child.columns[i]) for c, i in same.items()} for child in node.children)


def shared_types(nodes: Sequence[Node]) -> dict[str, str]:
    """The columns of the first node that have the same type in all of them, by position."""
    first, *rest = nodes
    return {
        name: t
        for i, name in enumerate(first.columns)
        if (t := first.column_types.get(name)) is not None and all(n.column_types.get(n.columns[i]) == t for n in rest)
    }
