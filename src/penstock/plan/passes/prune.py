"""Column pruning: unused columns are not read, passed on or kept in state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.plan.nodes import (
    Aggregate,
    Analytic,
    AsofJoin,
    Expr,
    Extremes,
    Filter,
    Generate,
    Join,
    LookupJoin,
    Named,
    Node,
    ProbeJoin,
    Project,
    Recursive,
    Scan,
    SortKey,
    TemporalFilter,
    TemporalJoin,
    TopN,
    Union,
    WindowAssign,
    col,
)
from penstock.plan.passes.rebuild import with_children
from penstock.plan.repeats import repeats

_Names = frozenset[str]


def prune_columns(root: Node) -> Node:
    """Removes unused columns; the root keeps its columns and their order.

    A shared subplan keeps the columns that any of its occurrences needs, in all of them, so that it can still be shared.
    """
    places = repeats(root)
    needs: dict[int, set[int]] = {part: set() for part in places.values()}
    while True:
        before = {part: len(columns) for part, columns in needs.items()}
        pruned = _Pruner(places, needs).prune(root, frozenset(root.columns))
        if before == {part: len(columns) for part, columns in needs.items()}:
            return _exactly(pruned, root.columns)


def _exactly(node: Node, names: tuple[str, ...]) -> Node:
    if node.columns == names:
        return node
    return Project(node, tuple(Named(n, col(n)) for n in names))


def _refs(exprs: Iterable[Expr | None]) -> _Names:
    return frozenset(r for e in exprs if e is not None for r in e.refs)


def _sorted(keys: Iterable[SortKey]) -> _Names:
    return _refs(k.expr for k in keys)


class _Pruner:
    """`needs`: the column positions needed of each shared part. It grows until all occurrences of a part need the same columns."""

    def __init__(self, places: Mapping[int, int], needs: dict[int, set[int]]) -> None:
        self._places = places
        self._needs = needs

    def prune(self, node: Node, need: _Names) -> Node:
        """`node` with at least the columns `need`."""
        part = self._places.get(id(node))
        if part is not None:
            self._needs[part].update(i for i, c in enumerate(node.columns) if c in need)
            need = frozenset(node.columns[i] for i in self._needs[part])
        return self._prune(node, need)

    def _prune(self, node: Node, need: _Names) -> Node:
        match node:
            case Scan():
                fields = tuple(f for f in node.fields if f[0] in need) or node.fields[:1]
                kept = {f[0] for f in fields}
                return replace(node, fields=fields, time_attrs=tuple(t for t in node.time_attrs if t.column in kept))
            case Project():
                items = tuple(i for i in node.items if i.name in need) or node.items[:1]
                return replace(node, items=items, child=self.prune(node.child, _refs(i.expr for i in items)))
            case Filter():
                return replace(node, child=self.prune(node.child, need | node.predicate.refs))
            case TemporalFilter():
                return replace(node, child=self._kept(node.child, need | _refs((node.enter_ms, node.exit_ms))))
            case Generate():
                return replace(
                    node, child=self.prune(node.child, (need - frozenset(node.outputs)) | node.generator.refs)
                )
            case WindowAssign():
                return replace(node, child=self.prune(node.child, (need - {node.start, node.end}) | node.time.refs))
            case Aggregate():
                return self._aggregate(node, need)
            case Extremes():
                return replace(node, child=self._kept(node.child, need | frozenset(node.keys) | node.value.refs))
            case Analytic():
                calls = tuple(c for c in node.calls if c.name in need)
                own = need - {c.name for c in node.calls}
                if not calls:
                    return self.prune(node.child, own)
                used = _refs(a for c in calls for a in c.args) | _refs(node.partition) | _sorted(node.order)
                return replace(node, calls=calls, child=self._kept(node.child, own | used))
            case TopN():
                rank_name = node.rank_name if node.rank_name in need else None
                own = need - {node.rank_name or ""}
                return replace(
                    node,
                    rank_name=rank_name,
                    child=self._kept(node.child, own | _refs(node.partition) | _sorted(node.order)),
                )
            case Union():
                keep = [i for i, n in enumerate(node.columns) if n in need] or [0]
                inputs = []
                for child in node.inputs:
                    names = tuple(child.columns[i] for i in keep)
                    inputs.append(_exactly(self.prune(child, frozenset(names)), names))
                return Union(tuple(inputs))
            case Join():
                bound = (node.time_bound.left_time, node.time_bound.right_time) if node.time_bound else ()
                return self._both(node, need, (*node.left_keys, *node.right_keys, node.residual, *bound))
            case Recursive():
                used = _refs((*node.right_keys, node.residual, *node.outputs)) & frozenset(node.right.columns)
                base = _exactly(self.prune(node.left, frozenset(node.left.columns)), node.left.columns)
                return with_children(node, [base, self.prune(node.right, used)])
            case LookupJoin():
                return self._both(node, need, (*node.left_keys, *node.right_keys, node.residual))
            case AsofJoin() | TemporalJoin() | ProbeJoin():
                return self._both(node, need, (*node.left_keys, *node.right_keys, node.left_time, node.right_time))
        # Nodes that compare whole rows (DISTINCT, EXCEPT …), and leaves, keep every column.
        return with_children(node, [_exactly(self.prune(c, frozenset(c.columns)), c.columns) for c in node.children])

    def _aggregate(self, node: Aggregate, need: _Names) -> Node:
        aggs = tuple(a for a in node.aggs if a.name in need)
        used = _refs(k.expr for k in node.keys)
        for a in aggs:
            used |= _refs((*a.args, a.filter)) | _sorted(a.order)
        if node.session:
            used |= node.session.time.refs
        if node.late_to is not None:
            used |= frozenset(node.child.columns)
        return replace(node, aggs=aggs, child=self.prune(node.child, used))

    def _both(self, node: Node, need: _Names, exprs: Iterable[Expr | None]) -> Node:
        wanted = need | _refs(exprs)
        left, right = node.children
        return with_children(node, [self._kept(c, wanted) for c in (left, right)])

    def _kept(self, node: Node, need: _Names) -> Node:
        """`node` with no columns beyond `need`, for an operator that stores whole rows: a column that only a filter used must not go into state."""
        names = tuple(c for c in node.columns if c in need)
        pruned = self.prune(node, frozenset(names))
        if not names or frozenset(pruned.columns) <= need:
            return pruned
        return _exactly(pruned, names)
