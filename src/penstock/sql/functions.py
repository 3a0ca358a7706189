"""Postgres function names, and the canonical names of aggregates and analytic functions."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp


def call(name: str, *args: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(args))


def _split(node: exp.Expression) -> exp.Expression:
    """string_to_array(s, sep): the separator is a literal, not a pattern; an empty string gives an empty array."""
    text, sep = node.this, node.args["expression"]
    if isinstance(sep, exp.Literal) and sep.is_string:
        pattern: exp.Expression = exp.Literal.string(re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", sep.name))
    else:
        pattern = call("concat", exp.Literal.string("\\Q"), sep, exp.Literal.string("\\E"))
    empty = exp.cast(call("array"), exp.DataType.build("ARRAY<STRING>", dialect="spark"))
    return exp.If(
        this=exp.EQ(this=text.copy(), expression=exp.Literal.string("")), true=empty, false=call("split", text, pattern)
    )


_RENAMED = {
    "make_array": "array",
    "array_to_string": "array_join",
    "clock_timestamp": "now",
    "statement_timestamp": "now",
    "transaction_timestamp": "now",
    "to_hex": "hex",
    "chr": "char",
}
_REBUILT: dict[type[exp.Expression], Callable[[exp.Expression], exp.Expression]] = {
    exp.StringToArray: _split,
    exp.ToChar: lambda n: call("to_char", *(a for a in (n.this, n.args.get("format")) if a is not None)),
}


def translate(node: exp.Expression) -> exp.Expression:
    """Translates one call to Spark; its arguments are already translated. Returns the node itself if nothing changes."""
    rebuilt = _REBUILT.get(type(node))
    if rebuilt is not None:
        return rebuilt(node)
    if isinstance(node, exp.Anonymous):
        new = _RENAMED.get(node.name.lower())
        if new is not None:
            return call(new, *node.expressions)
    return node


def is_now(node: exp.Expression) -> bool:
    if isinstance(
        node, (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp, exp.CurrentDatetime)
    ):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in (
        "now",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
    )


AGGREGATES: dict[type[exp.Expression], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.First: "first_value",
    exp.FirstValue: "first_value",
    exp.Last: "last_value",
    exp.LastValue: "last_value",
    exp.AnyValue: "any_value",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.CovarPop: "covar_pop",
    exp.CovarSamp: "covar_samp",
    exp.Corr: "corr",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.GroupConcat: "string_agg",
    exp.ArrayAgg: "array_agg",
    exp.ArrayUniqueAgg: "collect_set",
    exp.Quantile: "percentile",
    exp.PercentileCont: "percentile",
    exp.PercentileDisc: "percentile_disc",
    exp.Median: "median",
    exp.ApproxDistinct: "approx_count_distinct",
    exp.ApproxQuantile: "percentile_approx",
    exp.CountIf: "count_if",
    exp.Mode: "mode",
    exp.Kurtosis: "kurtosis",
    exp.Skewness: "skewness",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
    exp.RegrSlope: "regr_slope",
    exp.RegrIntercept: "regr_intercept",
    exp.RegrCount: "regr_count",
    exp.RegrR2: "regr_r2",
}
NAMED_AGGREGATES = {
    "every": "bool_and",
    "any": "bool_or",
    "some": "bool_or",
    "std": "stddev_samp",
    "try_sum": "try_sum",
    "try_avg": "try_avg",
}
NOT_MAINTAINED = frozenset(
    {
        "kurtosis", "skewness", "regr_slope", "regr_intercept", "regr_count", "regr_r2", "regr_avgx", "regr_avgy", "regr_sxx", "regr_sxy",
        "regr_syy", "histogram_numeric", "count_min_sketch", "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine",
        "hll_sketch_agg", "hll_union_agg", "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "theta_sketch_agg",
        "theta_union_agg", "theta_intersection_agg", "bitmap_construct_agg", "bitmap_or_agg", "bitmap_and_agg", "schema_of_variant_agg",
    }
)  # fmt: skip
"""Spark aggregates that Penstock cannot maintain incrementally."""
MAINTAINED = (frozenset(AGGREGATES.values()) | frozenset(NAMED_AGGREGATES.values())) - NOT_MAINTAINED
ANALYTIC: dict[type[exp.Expression], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
    exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist",
    exp.Ntile: "ntile",
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.NthValue: "nth_value",
    exp.FirstValue: "first_value",
    exp.First: "first_value",
    exp.LastValue: "last_value",
    exp.Last: "last_value",
}
GENERATORS: dict[str, int] = {
    "explode": 1,
    "explode_outer": 1,
    "posexplode": 2,
    "posexplode_outer": 2,
    "unnest": 1,
    "inline": 0,
    "stack": 0,
    "range": 1,
    "generate_series": 1,
}


def aggregate_name(node: exp.Expression) -> str | None:
    """The canonical name if the node is an aggregate call."""
    name = AGGREGATES.get(type(node))
    if isinstance(node, exp.Any) and isinstance(node.this, exp.Paren) and not isinstance(node.parent, exp.Binary):
        # ANY without a comparison before it is the function.
        name = "bool_or"
    if name is None and isinstance(node, exp.Anonymous):
        called = node.name.lower()
        name = called if called in NOT_MAINTAINED else NAMED_AGGREGATES.get(called)
    if (
        name is None
        and isinstance(node, exp.AggFunc)
        and type(node) not in ANALYTIC
        and not isinstance(node, (exp.Grouping, exp.GroupingId))
    ):
        name = node.sql_name().lower()
    return name


def generator_name(node: exp.Expression) -> str | None:
    """The lower-case name if the node is a call of a table-generating function."""
    if isinstance(node, exp.PosexplodeOuter):
        return "posexplode_outer"
    if isinstance(node, exp.ExplodeOuter):
        return "explode_outer"
    if isinstance(node, exp.Posexplode):
        return "posexplode"
    if isinstance(node, exp.Explode):
        return "explode"
    if isinstance(node, exp.Unnest):
        return "unnest"
    if isinstance(node, exp.Inline):
        return "inline"
    if isinstance(node, exp.Stack):
        return "stack"
    if isinstance(node, exp.GenerateSeries):
        return "generate_series"
    if isinstance(node, exp.Anonymous) and node.name.lower() in GENERATORS:
        return node.name.lower()
    return None
