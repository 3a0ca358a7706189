"""Parts of a plan that stand in it more than once.

A subquery that is used twice is carried out twice, each time with state of its own: in Spark a streaming query is a tree. Parts
without state cost little; of those with state EXPLAIN tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.plan.explain import describe
from penstock.plan.nodes import Filter, Generate, Node, ProbeJoin, Project, Scan, Union, Values, WindowAssign

LINEAR = (Scan, Values, Filter, Project, Generate, WindowAssign, Union)
"""Nodes that keep nothing."""


def stateful(node: Node) -> bool:
    """True if something at or below the node keeps state."""
    return any(not isinstance(n, LINEAR) for n in node.walk())


def repeats(root: Node) -> dict[int, Node]:
    """Later occurrences of a part with state (by the id of their node) with the node of the first one; the largest parts only."""
    first: dict[str, Node] = {}
    found: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if isinstance(node, LINEAR) and not stateful(node):
            return
        if not isinstance(node, LINEAR):
            key = shape(node)
            if key in first:
                found[id(node)] = first[key]
                return
            first[key] = node
        for child in node.children:
            visit(child)

    visit(root)
    return found


def shape(node: Node) -> str:
    """What the node computes, whatever its columns are called inside."""
    names: dict[str, str] = {}
    for n in node.walk():
        for column in n.columns:
            names.setdefault(column, f"@{len(names)}")
    text = "\n".join(_lines(node, 0))
    pattern = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w$])(?:{pattern})(?![\w$])", lambda m: names[m[0]], text) if names else text


def _lines(node: Node, depth: int) -> Iterator[str]:
    extra = ""
    if isinstance(node, Scan):
        extra = f" {node.object_id} ({', '.join(source for _, source in node.fields)})"
    elif isinstance(node, Values):
        extra = " " + "; ".join(", ".join(e.sql() for e in row) for row in node.rows)
    elif isinstance(node, ProbeJoin):
        extra = f" {node.offsets}"
    yield f"{depth} {describe(node)}{extra}"
    for child in node.children:
        yield from _lines(child, depth + 1)
