"""The compile function of each plan node. A test checks that every node is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.plan import nodes as p
from penstock.spark import aggregates, analytics, joins, recursion
from penstock.spark.compile import Compiler
from penstock.spark.windows import assign

COMPILED: Mapping[type[p.Node], Callable[[Compiler, Any], DataFrame]] = {
    p.Scan: Compiler.scan,
    p.Values: Compiler.values,
    p.Filter: Compiler.filter,
    p.Project: Compiler.project,
    p.Generate: Compiler.generate,
    p.WindowAssign: lambda c, n: assign(c, c.node(n.child), n),
    p.Union: Compiler.union,
    p.Aggregate: aggregates.aggregate,
    p.Extremes: aggregates.extremes,
    p.Distinct: aggregates.distinct,
    p.TemporalFilter: aggregates.temporal_filter,
    p.TopN: analytics.top_n,
    p.Analytic: analytics.analytic,
    p.SetOp: analytics.set_op,
    p.Recursive: recursion.recursive,
    p.Join: joins.join,
    p.AsofJoin: joins.asof_join,
    p.TemporalJoin: joins.temporal_join,
    p.ProbeJoin: joins.probe_join,
    p.LookupJoin: joins.lookup_join,
}
