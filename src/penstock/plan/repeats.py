"""Common subplans.

A stateful subplan ("part") that occurs in several places is computed only once, with one copy of its state: `spark.compile` compiles its first
occurrence, and the other places read its output. Stateless subplans are not shared; computing them again is cheaper than passing on their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

from sqlglot import exp

from penstock.plan import nodes as p
from penstock.plan.predicates import deterministic, renamed, split, total


def repeats(root: p.Node) -> dict[int, int]:
    """Finds the largest stateful subplans that occur more than once. Maps the id of each occurrence's root node to its part number.

    Later occurrences are never compiled, so nodes below them do not count as occurrences; they get the numbers of their counterparts
    below the first. A subplan with non-deterministic expressions is never shared.
    """
    first: dict[str, p.Node] = {}
    number: dict[str, int] = {}
    places: dict[int, int] = {}
    pairs: list[tuple[p.Node, p.Node]] = []
    alike = Counter(_outline(n) for n in root.walk() if not isinstance(n, p.Linear))

    def visit(node: p.Node) -> None:
        # Computing a shape is slow, and in most plans no two subplans even have the same outline.
        again = not isinstance(node, p.Linear) and alike[_outline(node)] > 1
        if again and all(deterministic(e) for e in expressions(node)):
            key = shape(node)
            if key in first:
                part = number.setdefault(key, len(number) + 1)
                places[id(first[key])] = places[id(node)] = part
                pairs.append((first[key], node))
                return
            first[key] = node
        for child in node.children:
            visit(child)

    visit(root)
    for one, other in pairs:
        for a, b in zip(one.walk(), other.walk(), strict=True):
            if id(a) in places:
                places[id(b)] = places[id(a)]
    return places


def same(one: p.Node, other: p.Node) -> bool:
    """True if both subplans produce the same rows, ignoring column names but not column order."""
    alike = _outline(one) == _outline(other) and all(deterministic(e) for e in expressions(one))
    return alike and shape(one) == shape(other)


def canonical(query: p.Query) -> str | None:
    """A text that is equal only for queries with the same rows and column order, regardless of names. None for a query
    whose rows are not a function of its input."""
    if not all(deterministic(e) for e in expressions(query.root)):
        return None
    return f"{query.emit} {shape(query.root)}"


def _outline(node: p.Node) -> tuple[object, ...]:
    """The types of the nodes and the objects they scan. Equal shapes have equal outlines."""
    return tuple(n.object_id if isinstance(n, p.Scan) else type(n) for n in node.walk())


def shape(node: p.Node, write: Callable[[p.Expr], str] = p.Expr.sql) -> str:
    """A canonical text of the subplan, independent of internal column names, and of the order of AND if no condition can fail. Equal shapes
    compute the same rows. `write` gives the text of an expression."""
    names: dict[str, str] = {}
    types: dict[str, str] = {}
    for n in node.walk():
        for column in n.columns:
            names.setdefault(column, f"@{len(names)}")
        if isinstance(n, p.Scan):
            types.update(n.types)
    return repr(_form(node, _Naming(names, types, write)))


class _Naming(NamedTuple):
    """The numbers and the known types of columns, by their internal names, and how expressions are written."""

    names: Mapping[str, str]
    types: Mapping[str, str]
    write: Callable[[p.Expr], str]


def _text(value: p.Expr, naming: _Naming) -> str:
    if _names_matter(value):
        return naming.write(value)
    if isinstance(value.node, exp.And):
        parts = split(value)
        # Order matters if a condition can fail, because an earlier one may drop the row first.
        if all(total(part, naming.types) for part in parts):
            return " AND ".join(sorted(f"({naming.write(renamed(part, naming.names))})" for part in parts))
    return naming.write(renamed(value, naming.names))


def _form(value: Any, naming: _Naming) -> Any:
    if isinstance(value, p.Expr):
        return _text(value, naming)
    if is_dataclass(value) and not isinstance(value, type):
        named = getattr(value, "column_names", ())
        parts = ((f.name, getattr(value, f.name)) for f in fields(value) if f.compare)
        return (
            type(value).__name__,
            *(_name(v, naming.names) if f in named else _form(v, naming) for f, v in parts),
        )
    if isinstance(value, tuple):
        return tuple(_form(v, naming) for v in value)
    if isinstance(value, frozenset):
        return tuple(sorted(value))
    if isinstance(value, Enum):
        return value.name
    return value


def _name(value: Any, names: Mapping[str, str]) -> Any:
    """Replaces names by their numbers, in a name, a list of names, or pairs of a name and a value."""
    if isinstance(value, tuple):
        return tuple((names.get(v[0], v[0]), *v[1:]) if isinstance(v, tuple) else names.get(v, v) for v in value)
    return names.get(value, value)


def _names_matter(expr: p.Expr) -> bool:
    """True if the value depends on column names: struct(a) has a field a."""
    for node in expr.node.walk():
        made = isinstance(node, exp.Anonymous) and node.name.lower() == "struct"
        if made and any(isinstance(e, exp.Column) for e in node.expressions):
            return True
    return False


def expressions(node: p.Node) -> Iterator[p.Expr]:
    """The expressions of a node and all nodes below it."""
    return (e for n in node.walk() for e in n.expressions)
