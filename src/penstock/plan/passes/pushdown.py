"""Filter pushdown: stateful operators see fewer rows."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.nodes import Expr, Filter, Linear, Node
from penstock.plan.predicates import deterministic, filtered, renamed, replaced, split


def push_filters(root: Node) -> Node:
    """Pushes each conjunct as deep as possible without changing the result."""
    return _push(root, [])


def _push(node: Node, parts: list[Expr]) -> Node:
    """`node` filtered by the conjuncts `parts`, which refer to its columns."""
    if isinstance(node, Filter):
        return _push(node.child, [*split(node.predicate), *parts])
    below = [_usable(node, child, columns) for child, columns in zip(node.children, node.below, strict=True)]
    down = [[p for p in parts if p.refs and p.refs <= columns.keys() and deterministic(p)] for columns in below]
    sides = [[_over(p, columns) for p in some] for some, columns in zip(down, below, strict=True)]
    if node.matched:
        sides = _transferred(node.matched, *sides)
    made = node.with_children([_push(c, s) for c, s in zip(node.children, sides, strict=True)])
    moved = {id(p) for some in down for p in some}
    return filtered(made, [p for p in parts if id(p) not in moved])


def _usable(node: Node, child: Node, columns: Mapping[str, Expr]) -> dict[str, Expr]:
    """The columns whose filters can be pushed below the node. Pushing below a computed column computes it twice, which pays off if it saves state."""
    spares = not isinstance(node, Linear) or child.stateful
    return {c: e for c, e in columns.items() if e.column is not None or (spares and deterministic(e))}


def _over(part: Expr, columns: Mapping[str, Expr]) -> Expr:
    """A conjunct over the columns of a child."""
    names = {c: columns[c].column for c in part.refs}
    if all(c == name for c, name in names.items()):
        return part
    plain = {c: name for c, name in names.items() if name is not None}
    return renamed(part, plain) if len(plain) == len(names) else replaced(part, columns)


def _transferred(matched: Mapping[str, str], left: list[Expr], right: list[Expr]) -> list[list[Expr]]:
    """Copies filters on join keys to the other side, where rows that fail them have no match."""
    back = {b: a for a, b in matched.items()}
    more_right = [renamed(p, matched) for p in left if p.refs <= matched.keys()]
    more_left = [renamed(p, back) for p in right if p.refs <= back.keys()]
    return [[*left, *(p for p in more_left if p not in left)], [*right, *(p for p in more_right if p not in right)]]
