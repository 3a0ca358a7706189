"""Postgres function names, and the canonical names of aggregates and analytic functions."""

from __future__ import annotations

import re

from sqlglot import exp

from penstock.plan.dialect import DIALECT, Phrase


def call(name: str, *args: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(args))


def _split(text: exp.Expression, sep: exp.Expression) -> exp.Expression:
    """string_to_array(s, sep): the separator is a literal, not a pattern; an empty string gives an empty array."""
    if isinstance(sep, exp.Literal) and sep.is_string:
        pattern: exp.Expression = exp.Literal.string(re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", sep.name))
    else:
        pattern = call("concat", exp.Literal.string("\\Q"), sep, exp.Literal.string("\\E"))
    empty = exp.cast(call("array"), exp.DataType.build("ARRAY<STRING>", dialect=DIALECT))
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


def name_of(node: exp.Expr) -> str | None:
    """The lower-case name of the function that a node calls; None if it is not a call."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, Phrase):
        return str(node.this).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else None


def translate(node: exp.Expression) -> exp.Expression:
    """Translates one call of a Postgres name to Spark; its arguments are already translated. Returns the node itself if nothing changes."""
    if not isinstance(node, exp.Anonymous):
        return node
    name = node.name.lower()
    if name == "string_to_array" and len(node.expressions) == 2:
        return _split(*node.expressions)
    if name == "strpos" and len(node.expressions) == 2:
        return call("locate", *reversed(node.expressions))
    new = _RENAMED.get(name)
    return call(new, *node.expressions) if new is not None else node


_NOW = frozenset(
    {
        "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "current_timestamp", "current_date", "current_time",
        "curdate", "localtimestamp", "localtime",
    }
)  # fmt: skip


def is_now(node: exp.Expression) -> bool:
    return name_of(node) in _NOW


AGGREGATES: dict[str, str] = {
    name: name
    for name in (
        "count", "sum", "avg", "min", "max", "min_by", "max_by", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "covar_pop", "covar_samp",
        "corr", "bool_and", "bool_or", "string_agg", "array_agg", "collect_set", "percentile", "percentile_disc", "median",
        "approx_count_distinct", "percentile_approx", "count_if", "mode", "bit_and", "bit_or", "bit_xor", "try_sum", "try_avg",
        "first_value", "last_value", "any_value",
    )
} | {
    "mean": "avg",
    "first": "first_value",
    "last": "last_value",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "variance": "var_samp",
    "every": "bool_and",
    "any": "bool_or",
    "some": "bool_or",
    "listagg": "string_agg",
    "collect_list": "array_agg",
    "percentile_cont": "percentile",
    "approx_percentile": "percentile_approx",
}  # fmt: skip
"""Aggregates that are maintained incrementally, with their canonical names."""
RECOMPUTED = frozenset(
    {
        "kurtosis", "skewness", "regr_slope", "regr_intercept", "regr_count", "regr_r2", "regr_avgx", "regr_avgy", "regr_sxx", "regr_sxy",
        "regr_syy", "histogram_numeric", "count_min_sketch", "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine",
        "hll_sketch_agg", "hll_union_agg", "theta_sketch_agg", "theta_union_agg", "theta_intersection_agg", "bitmap_construct_agg",
        "bitmap_or_agg", "bitmap_and_agg", "schema_of_variant_agg", "collect_union", "vector_avg", "vector_sum",
        "tuple_sketch_agg_double", "tuple_sketch_agg_integer", "tuple_union_agg_double", "tuple_union_agg_integer",
        "tuple_intersection_agg_double", "tuple_intersection_agg_integer",
    }
)  # fmt: skip
"""Aggregates without an incremental form: Spark computes them again from all rows of a group that has changed."""
RANDOM = frozenset(
    {
        "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "kll_merge_agg_bigint", "kll_merge_agg_double",
        "kll_merge_agg_float",
    }
)  # fmt: skip
"""Aggregates that give another value each time, which could not be retracted."""
NULL_OF_NOTHING = frozenset(
    {
        "kurtosis", "skewness", "regr_slope", "regr_intercept", "regr_r2", "regr_avgx", "regr_avgy", "regr_sxx", "regr_sxy", "regr_syy",
        "histogram_numeric",
    }
)  # fmt: skip
"""Those of RECOMPUTED whose value over no rows is NULL."""
MAINTAINED = frozenset(AGGREGATES.values())
ANALYTIC: dict[str, str] = {
    name: name
    for name in (
        "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value", "first_value", "last_value",
    )
} | {"first": "first_value", "last": "last_value"}  # fmt: skip
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
    if isinstance(node, exp.Any):
        # ANY without a comparison before it is the function.
        alone = isinstance(node.this, exp.Paren) and not isinstance(node.parent, exp.Binary)
        return "bool_or" if alone else None
    name = name_of(node)
    if name is None:
        return None
    return name if name in RECOMPUTED or name in RANDOM else AGGREGATES.get(name)


SEVERAL = frozenset({"inline_outer", "json_tuple"})
"""More functions that return several columns. A one-shot SELECT gives them no name."""


def generator_name(node: exp.Expression) -> str | None:
    """The lower-case name if the node is a call of a table-generating function."""
    if isinstance(node, exp.Unnest):
        return "unnest"
    name = name_of(node)
    return name if name in GENERATORS else None
