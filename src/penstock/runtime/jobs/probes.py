"""On-demand lookups in a query: the left rows become a hidden stream, whose lookups are answered when an epoch is recorded.

`left JOIN d` becomes two jobs. The first emits the left rows, with the key that each needs, to a hidden stream, the probe. When an
epoch of it is recorded, the rows of `d` that it needs are appended to the log in the same commit. The second job joins the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import ObjectInfo
from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Emit, Expr, LookupJoin, Named, Node, Project, Query, Scan, TimeAttr, col
from penstock.plan.passes.rebuild import transform
from penstock.runtime.connect.ondemand import key_columns


@dataclass(frozen=True)
class Probe:
    """The left side of an on-demand lookup as a query: its columns, then the key in the types of the table."""

    name: str
    query: Query
    lookup: ObjectInfo


Make = Callable[[Probe], ObjectInfo]


def probe_name(owner: str, number: int) -> str:
    return f"__probe_{number}_{owner}"


def split(query: Query, owner: str, by_id: Callable[[int], ObjectInfo], make: Make) -> Query:
    """The query with a scan of its probe in place of the left side of every on-demand lookup; `make` is called for each, innermost first."""
    count = 0

    def cut(node: Node) -> Node:
        nonlocal count
        if not isinstance(node, LookupJoin) or not node.on_demand:
            return node
        assert isinstance(node.right, Scan)
        probe = _probe(node, node.right, probe_name(owner, count), by_id(node.right.object_id))
        count += 1
        info = make(probe)
        internal = {f"c{i}": c for i, c in enumerate(node.left.columns)}
        times = tuple(TimeAttr(internal[t.column], t.lag_ms) for t in info.times if t.column in internal)
        fields = tuple((i, c) for c, i in internal.items())
        return replace(node, left=Scan(info.name, info.id, fields, info.changelog, times))

    return replace(query, root=transform(query.root, cut))


def _probe(node: LookupJoin, right: Scan, name: str, lookup: ObjectInfo) -> Probe:
    own = dict(right.fields)
    asked = {own[r.column]: left for left, r in zip(node.left_keys, node.right_keys, strict=True) if r.column in own}
    keys = []
    for i, key in enumerate(lookup.key):
        column = lookup.column(key)
        assert column is not None
        # The cast may change a value so that it matches a wrong key; the join compares the original again.
        kind = exp.DataType.build(without_lengths(column.type), dialect=DIALECT)
        cast = exp.TryCast(this=asked[key].node.copy(), to=kind, safe=True)
        keys.append(Named(f"__key{i}", Expr(cast)))
    left = node.left
    root = Project(left, (*(Named(c, col(c)) for c in left.columns), *keys))
    names = (*(f"c{i}" for i in range(len(left.columns))), *key_columns(lookup))
    return Probe(name, Query(root, names, Emit("changes" if left.changelog else "append")), lookup)


def refuse_late_data(probe: Probe) -> None:
    """Raises PSK-1012 if the late rows are those of a probe, which has no side stream."""
    if any(getattr(n, "late_to", None) is not None for n in probe.query.root.walk()):
        raise fail(
            "PSK-1012",
            "LATE DATA TO is not supported below an on-demand lookup.",
            hint="Create a stream of the windows, and do the lookup in a second one.",
        )
