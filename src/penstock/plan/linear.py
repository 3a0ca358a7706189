"""Which nodes keep state."""

from __future__ import annotations

from penstock.plan.nodes import Filter, Generate, Node, Project, Scan, Union, Values, WindowAssign

LINEAR = (Scan, Values, Filter, Project, Generate, WindowAssign, Union)
"""Stateless nodes."""


def stateful(node: Node) -> bool:
    """True if the node or one below it keeps state."""
    return any(not isinstance(n, LINEAR) for n in node.walk())
