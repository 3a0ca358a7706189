"""The logical algebra: frozen nodes over Z-sets.

Columns inside a plan have flat, unique internal names (`alias$column`); expressions are sqlglot trees over
unqualified, quoted columns of those names, so that `Expr.sql()` is Spark SQL over the child's columns.
Nodes only describe semantics. `penstock.spark.compile` decides whether a node runs in native Spark or in the kernel.
"""

from __future__ import annotations

from penstock.plan.nodes.base import Expr, Interval, Linear, Named, Need, Node, Reads, SortKey, TimeAttr, col
from penstock.plan.nodes.cost import Cost
from penstock.plan.nodes.groups import (
    AggCall,
    Aggregate,
    Distinct,
    EmitMode,
    Extremes,
    SessionWindow,
    SetKind,
    SetOp,
    TemporalFilter,
)
from penstock.plan.nodes.joins import (
    AsofJoin,
    IntervalBound,
    Join,
    JoinKind,
    LookupJoin,
    ProbeJoin,
    Recursive,
    TemporalJoin,
)
from penstock.plan.nodes.linear import Filter, Generate, Project, Scan, Union, Values, WindowAssign, WindowKind
from penstock.plan.nodes.ordered import Analytic, TopN, WindowCall, WindowFrame
from penstock.plan.nodes.query import Emit, Query, SortTerm

__all__ = [
    "AggCall",
    "Aggregate",
    "Analytic",
    "AsofJoin",
    "Cost",
    "Distinct",
    "Emit",
    "EmitMode",
    "Expr",
    "Extremes",
    "Filter",
    "Generate",
    "Interval",
    "IntervalBound",
    "Join",
    "JoinKind",
    "Linear",
    "LookupJoin",
    "Named",
    "Need",
    "Node",
    "ProbeJoin",
    "Project",
    "Query",
    "Reads",
    "Recursive",
    "Scan",
    "SessionWindow",
    "SetKind",
    "SetOp",
    "SortKey",
    "SortTerm",
    "TemporalFilter",
    "TemporalJoin",
    "TimeAttr",
    "TopN",
    "Union",
    "Values",
    "WindowAssign",
    "WindowCall",
    "WindowFrame",
    "WindowKind",
    "col",
]
