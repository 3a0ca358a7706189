"""Runs the plan of a continuous query once, over all rows of its inputs: the same operators, in one epoch, with their state in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.column import Column

from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.passes.rebuild import transform
from penstock.spark.compile import Compiler
from penstock.spark.guards import Guards
from penstock.spark.session import jvm

_WAITING = (p.TemporalFilter, p.Recursive, p.Extremes)
"""Nodes that need more than one epoch."""


class Once(Compiler):
    """Compiles a query over temporary views with the names of its objects."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark, "once", _unknown, 1)
        self.guards = _Unguarded(spark, lambda: self.current)

    def frame(self, query: p.Query) -> DataFrame:
        """The rows, with the names and order of the query. A row that cannot be computed fails the query, as in any SELECT."""
        root = transform(query.root, _complete)
        for n in root.walk():
            if isinstance(n, _WAITING) or (isinstance(n, p.Aggregate) and n.session is not None):
                raise fail(
                    "PSK-1012",
                    f"A one-shot SELECT cannot combine {type(n).__name__} with an operator that only views have.",
                    hint="Put it into CREATE MATERIALIZED VIEW and select from that.",
                )
        self.activate()
        made = self.node(root)
        named = [F.col(f"`{c}`").alias(n) for c, n in zip(root.columns, query.names, strict=True)]
        out = made.select(*named)
        return out.orderBy(*(_sorted(t) for t in query.order)) if query.order else out

    def _frame(self, n: p.Node) -> DataFrame:
        return self.scan(n) if isinstance(n, p.Scan) else super()._frame(n)

    def scan(self, n: p.Scan) -> DataFrame:
        # One partition, because of rows with the same time an ASOF join takes the last to arrive.
        df = self.spark.table(f"`{n.object.replace('`', '``')}`").coalesce(1)
        select = [F.col(f"`{source}`").alias(name) for name, source in n.fields]
        return df.select(*select, *([F.lit(1).cast("bigint").alias("__weight")] if n.changelog else []))

    def unit(self) -> DataFrame:
        return self.spark.range(1).select(F.col("id").alias("u"))

    def kernel(self, operator: str, spec: dict[str, object], *frames: DataFrame) -> DataFrame:
        spec = {k: v for k, v in spec.items() if k != "errors"} | {"atOnce": True}
        for calls in ("calls", "aggs"):
            if isinstance(found := spec.get(calls), list):
                spec[calls] = [c | {"fails": None} for c in found]
        java = getattr(jvm(), operator).apply(*(f._jdf for f in frames), json.dumps(spec))
        return DataFrame(java, self.spark)


class _Unguarded(Guards):
    """Leaves expressions unguarded."""

    def select(
        self,
        n: p.Node,
        df: DataFrame,
        columns: Sequence[Column],
        exprs: Sequence[p.Expr | str | None],
        names: Mapping[str, str] | None = None,
    ) -> DataFrame:
        return df.select(*columns)

    def where(self, n: p.Node, df: DataFrame, condition: Column, expr: p.Expr) -> DataFrame:
        return df.where(condition)

    @staticmethod
    def fallible(df: DataFrame, columns: Sequence[Column]) -> bool:
        return False

    @staticmethod
    def guards(df: DataFrame) -> bool:
        return False

    def spec(self, names: Mapping[str, str]) -> dict[str, object]:
        return {}


def _unknown(object_id: int) -> Any:
    raise fail("PSK-8001", f"Object {object_id} has no rows here.")


def _complete(n: p.Node) -> p.Node:
    """The node over complete input: no operator waits for a watermark, and a lookup table is a plain table."""
    match n:
        case p.Scan():
            return replace(n, time_attrs=())
        case p.AsofJoin():
            return replace(n, eager=True)
        case p.LookupJoin():
            return p.Join(n.left, n.right, n.kind, n.left_keys, n.right_keys, residual=n.residual)
        case p.Aggregate(window_end=str()):
            return replace(n, window_end=None)
        case _:
            return n


def _sorted(term: p.SortTerm) -> Column:
    by = F.expr(term.expression)
    if term.desc:
        return by.desc_nulls_first() if term.nulls_first else by.desc_nulls_last()
    return by.asc_nulls_first() if term.nulls_first else by.asc_nulls_last()
