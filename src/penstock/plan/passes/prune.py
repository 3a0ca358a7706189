"""Column pruning: unused columns are not read, passed on or kept in state."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.nodes import Named, Need, Node, Project, col
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
        slim = node.narrowed(need)
        if type(slim) is not type(node):
            return self.prune(slim, need)
        needs = zip(slim.children, slim.needs(need), strict=True)
        return slim.with_children([self._input(child, wanted) for child, wanted in needs])

    def _input(self, node: Node, need: Need) -> Node:
        names = tuple(c for c in node.columns if c in need.columns)
        pruned = self.prune(node, frozenset(names))
        if need.order is not None:
            return _exactly(pruned, need.order)
        if need.only and names and not frozenset(pruned.columns) <= need.columns:
            return _exactly(pruned, names)
        return pruned
