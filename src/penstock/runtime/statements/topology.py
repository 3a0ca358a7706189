"""The graph of objects and their inputs."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.connect import masked
from penstock.runtime.engine import Engine


@dataclass(frozen=True)
class TopologyNode:
    name: str
    kind: str
    columns: tuple[tuple[str, str], ...]
    sql: str


@dataclass(frozen=True)
class Topology:
    """Objects and the edges (from, to) between them, by name."""

    nodes: tuple[TopologyNode, ...]
    edges: tuple[tuple[str, str], ...]


def topology(engine: Engine) -> Topology:
    objects = [o for o in engine.catalog.objects() if not o.hidden]
    names = {o.id: o.name for o in objects}
    nodes = tuple(
        TopologyNode(o.name, o.kind.value, tuple((c.name, c.type) for c in o.columns), masked(o.sql)) for o in objects
    )
    edges = tuple((names[i], o.name) for o in objects for i in dict.fromkeys((*o.depends_on, *o.expands)) if i in names)
    return Topology(nodes, edges)
