"""Which nodes keep state."""

from __future__ import annotations

from penstock.plan.nodes import Filter, Generate, Node, Project, Scan, Union, Values, WindowAssign

LINEAR = (Scan, Values, Filter, Project, Generate, WindowAssign, Union)
"""Nodes that keep nothing."""


def stateful(node: Node) -> bool:
    """True if something at or below the node keeps state."""
    return any(not isinstance(n, LINEAR) for n in node.walk())
