"""The functions over several rows: one record per aggregate and per analytic function."""

from penstock.plan.functions.aggregate import Accepts, AggregateFunction, Keeps, OfNothing, Path, Result
from penstock.plan.functions.aggregates import AGGREGATES, ROWS_AT_MAX, ROWS_AT_MIN, aggregate, find_aggregate
from penstock.plan.functions.analytic import ANALYTIC, AnalyticFunction, find_analytic

__all__ = [
    "AGGREGATES",
    "ANALYTIC",
    "ROWS_AT_MAX",
    "ROWS_AT_MIN",
    "Accepts",
    "AggregateFunction",
    "AnalyticFunction",
    "Keeps",
    "OfNothing",
    "Path",
    "Result",
    "aggregate",
    "find_aggregate",
    "find_analytic",
]
