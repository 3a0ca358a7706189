"""Filter pushdown: stateful operators see fewer rows."""

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
    SetOp,
    TemporalFilter,
    TemporalJoin,
    TopN,
    Union,
    WindowAssign,
)
from penstock.plan.predicates import deterministic, filtered, renamed, replaced, split


def push_filters(root: Node) -> Node:
    """Pushes each conjunct as deep as possible without changing the result."""
    return _push(root, [])


def _push(node: Node, parts: list[Expr]) -> Node:
    """`node` filtered by the conjuncts `parts`, which refer to its columns."""
    match node:
        case Filter():
            return _push(node.child, [*split(node.predicate), *parts])
        case Project():
            # Pushing a filter below an expression computes it twice. That pays off if it saves state.
            spares = node.child.stateful
            known = {i.name: i.expr for i in node.items if i.expr.column or (spares and deterministic(i.expr))}
            down = _movable(parts, frozenset(known))
            moved = [replaced(p, known) for p in down]
            return filtered(replace(node, child=_push(node.child, moved)), _rest(parts, down))
        case Union():
            return _each(node, parts)
        case SetOp():
            return _each(node, parts)
        case Distinct() | TemporalFilter():
            return _through(node, parts, frozenset(node.columns))
        case Generate() | WindowAssign():
            return _through(node, parts, frozenset(node.child.columns))
        case Aggregate():
            keys = {k.name: k.expr for k in node.keys if deterministic(k.expr)}
            down = _movable(parts, frozenset(keys)) if node.late_to is None and node.keys else []
            child = _push(node.child, [replaced(p, keys) for p in down])
            return filtered(replace(node, child=child), _rest(parts, down))
        case Analytic() | TopN():
            return _through(node, parts, frozenset(p.column for p in node.partition if p.column is not None))
        case Join():
            lefts = frozenset(node.left.columns) if node.kind not in ("right", "full") else frozenset()
            rights = frozenset(node.right.columns) if node.kind in ("inner", "right") else frozenset()
            return _sides(node, parts, lefts, rights)
        case LookupJoin() | AsofJoin() | TemporalJoin() | ProbeJoin():
            return _sides(node, parts, frozenset(node.left.columns), frozenset())
    return filtered(node.with_children([_push(c, []) for c in node.children]), parts)


def _rest(parts: list[Expr], taken: list[Expr]) -> list[Expr]:
    ids = {id(p) for p in taken}
    return [p for p in parts if id(p) not in ids]


def _movable(parts: list[Expr], names: frozenset[str]) -> list[Expr]:
    """The conjuncts that refer only to these columns."""
    return [p for p in parts if p.refs and p.refs <= names and deterministic(p)]


def _each(node: Union | SetOp, parts: list[Expr]) -> Node:
    """Filters each input separately, unless column types differ: this node casts them to a common type."""
    down = _movable(parts, frozenset(node.column_types))
    inputs = []
    for child in node.children:
        names = dict(zip(node.columns, child.columns, strict=True))
        inputs.append(_push(child, [renamed(p, names) for p in down]))
    return filtered(node.with_children(inputs), _rest(parts, down))


def _through(node: Node, parts: list[Expr], names: frozenset[str]) -> Node:
    down = _movable(parts, names)
    child = node.children[0]
    return filtered(node.with_children([_push(child, down)]), _rest(parts, down))


def _new(found: list[Expr], known: list[Expr]) -> list[Expr]:
    return [p for p in found if p not in known]


def _same_keys(node: Node) -> dict[str, str]:
    """Left columns, with the right columns that they equal in every match: plain key columns of the same type."""
    if isinstance(node, LookupJoin) or (isinstance(node, Join) and node.kind == "full"):
        return {}
    left, right = (c.column_types for c in node.children)
    pairs = zip(node.left_keys, node.right_keys, strict=True)  # type: ignore[attr-defined]
    return {
        a.column: b.column
        for a, b in pairs
        if a.column in left and b.column in right and left[a.column] == right[b.column]
    }


def _sides(node: Node, parts: list[Expr], lefts: frozenset[str], rights: frozenset[str]) -> Node:
    left, right = _movable(parts, lefts), _movable(parts, rights)
    same = _same_keys(node)
    back = {b: a for a, b in same.items()}
    # A filter on a join key of one side applies to the other side as well: the other rows have no match.
    more_right = [renamed(p, same) for p in left if p.refs <= same.keys()]
    more_left = [renamed(p, back) for p in right if p.refs <= back.keys()]
    sides = [[*left, *_new(more_left, left)], [*right, *_new(more_right, right)]]
    made = node.with_children([_push(c, s) for c, s in zip(node.children, sides, strict=True)])
    return filtered(made, _rest(_rest(parts, left), right))
