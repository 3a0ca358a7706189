"""Bottom-up plan transformation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.plan.nodes import Node, Union


def with_children(node: Node, children: Sequence[Node]) -> Node:
    """The node with other children; the node itself if they are the same."""
    old = node.children
    if all(a is b for a, b in zip(old, children, strict=True)):
        return node
    if isinstance(node, Union):
        return replace(node, inputs=tuple(children))
    if len(old) == 2:
        return replace(node, left=children[0], right=children[1])  # type: ignore[call-arg]
    return replace(node, child=children[0])  # type: ignore[call-arg]


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """Applies `change` to every node, children first."""
    return change(with_children(node, [transform(c, change) for c in node.children]))
