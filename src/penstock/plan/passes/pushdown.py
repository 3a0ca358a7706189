"""Filters move towards the scans, so that operators with state see fewer rows."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.nodes import (
    Aggregate,
    Analytic,
    AsofJoin,
    Distinct,
    Expr,
    Filter,
    Generate,
    Join,
    LookupJoin,
    Node,
    ProbeJoin,
    Project,
    TemporalFilter,
    TemporalJoin,
    TopN,
    Union,
    WindowAssign,
)
from penstock.plan.passes.predicates import filtered, renamed, split
from penstock.plan.passes.rebuild import with_children


def push_filters(root: Node) -> Node:
    """Each conjunct goes as deep as it can without changing any result; what cannot move stays where it was."""
    return _push(root, [])


def _push(node: Node, parts: list[Expr]) -> Node:
    """`node` under the conjuncts `parts`, which are over its columns."""
    match node:
        case Filter():
            return _push(node.child, [*split(node.predicate), *parts])
        case Project():
            bare = {i.name: i.expr.column for i in node.items if i.expr.column is not None}
            down = [p for p in parts if p.refs and p.refs <= bare.keys()]
            moved = [renamed(p, bare) for p in down]
            return filtered(replace(node, child=_push(node.child, moved)), _rest(parts, down))
        case Union():
            inputs = []
            for child in node.inputs:
                names = dict(zip(node.columns, child.columns, strict=True))
                inputs.append(_push(child, [renamed(p, names) for p in parts]))
            return Union(tuple(inputs))
        case Distinct() | TemporalFilter():
            return replace(node, child=_push(node.child, parts))
        case Generate() | WindowAssign():
            return _through(node, parts, frozenset(node.child.columns))
        case Aggregate():
            keys = frozenset(k.name for k in node.keys if k.expr.column == k.name)
            return _through(node, parts, keys if node.late_to is None else frozenset())
        case Analytic() | TopN():
            return _through(node, parts, frozenset(p.column for p in node.partition if p.column is not None))
        case Join():
            lefts = frozenset(node.left.columns) if node.kind not in ("right", "full") else frozenset()
            rights = frozenset(node.right.columns) if node.kind in ("inner", "right") else frozenset()
            return _sides(node, parts, lefts, rights)
        case LookupJoin() | AsofJoin() | TemporalJoin() | ProbeJoin():
            return _sides(node, parts, frozenset(node.left.columns), frozenset())
    return filtered(with_children(node, [_push(c, []) for c in node.children]), parts)


def _rest(parts: list[Expr], taken: list[Expr]) -> list[Expr]:
    ids = {id(p) for p in taken}
    return [p for p in parts if id(p) not in ids]


def _through(node: Node, parts: list[Expr], names: frozenset[str]) -> Node:
    down = [p for p in parts if p.refs and p.refs <= names]
    child = node.children[0]
    return filtered(with_children(node, [_push(child, down)]), _rest(parts, down))


def _sides(node: Node, parts: list[Expr], lefts: frozenset[str], rights: frozenset[str]) -> Node:
    left = [p for p in parts if p.refs and p.refs <= lefts]
    right = [p for p in parts if p.refs and p.refs <= rights]
    made = with_children(node, [_push(node.children[0], left), _push(node.children[1], right)])
    return filtered(made, _rest(_rest(parts, left), right))
