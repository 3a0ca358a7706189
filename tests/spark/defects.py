"""Queries whose code is broken."""

from __future__ import annotations

from dataclasses import replace

import penstock
from penstock.plan import nodes as p
from penstock.plan.passes.rebuild import transform
from penstock.spark.compile import Compiler
from penstock.spark.hosted import HostJob, membership


def break_member(db: penstock.Database, name: str, column: str) -> None:
    """Gives a member of a shared job code that reads a column which is not there, in place of another one."""
    engine = db._engine
    info = db._object(name)
    kernel = engine.jobs.by_object[info.id].kernel
    assert isinstance(kernel, HostJob)
    (read,) = (engine.catalog.by_id(i) for i in info.depends_on)
    other = replace(read, columns=tuple(replace(c, name="x") if c.name == column else c for c in read.columns))
    query = engine.jobs.planned[info.id].query

    def renamed(n: p.Node) -> p.Node:
        if not isinstance(n, p.Scan):
            return n
        return replace(n, fields=tuple((a, "x" if b == column else b) for a, b in n.fields))

    wrong = replace(query, root=transform(query.root, renamed))
    made = membership(Compiler(engine.compute.spark, "wrong", lambda _: other, 1, hosted=True).compile(wrong))
    assert not isinstance(made, str)
    (slot,) = (s for s, place in kernel._places.items() if place.object_id == info.id)
    kernel._table.put(engine.compute.spark._jsparkSession, slot, made.member)
