"""Bottom-up plan transformation."""

from __future__ import annotations

from collections.abc import Callable

from penstock.plan.nodes import Node


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """Applies `change` to every node, children first."""
    return change(node.with_children([transform(c, change) for c in node.children]))
