"""Merges adjacent projections."""

from __future__ import annotations

from penstock.plan.nodes import Named, Node, Project
from penstock.plan.passes.rebuild import transform


def merge_projects(root: Node) -> Node:
    """Merges a projection that only selects and renames columns with the projection below it."""
    return transform(root, _change)


def _change(node: Node) -> Node:
    if not isinstance(node, Project) or not isinstance(node.child, Project):
        return node
    below = {i.name: i.expr for i in node.child.items}
    picked = [i.expr.column for i in node.items]
    if any(p is None for p in picked):
        return node
    return Project(
        node.child.child,
        tuple(Named(i.name, below[p]) for i, p in zip(node.items, picked, strict=True) if p is not None),
    )
