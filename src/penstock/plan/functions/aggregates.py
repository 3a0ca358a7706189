"""The aggregate functions. A new one needs a record here and, if it is incremental, a constant in the kernel's `AggregateName` with its accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.plan.functions.aggregate import Accepts, AggregateFunction, Keeps, OfNothing, Path, Result

_Fn = AggregateFunction
_NUMBERS: dict[str, Any] = {"accepts": Accepts.NUMBERS}
_CANDIDATES: dict[str, Any] = {"keeps": Keeps.CANDIDATES, "result": Result.SAME}
_EDGE: dict[str, Any] = {**_CANDIDATES, "most": 1, "decides": None}
_PERCENTILE: dict[str, Any] = {"counts": True, "keeps": Keeps.WHOLE, "result": Result.ALIKE, "accepts": Accepts.NUMBERS}


def _percentile(args: Sequence[str]) -> str:
    return f"percentile({', '.join(args)})"


def _joined(args: Sequence[str]) -> str:
    return f"concat_ws('', collect_list(CAST({args[0]} AS STRING)))"


def _list(args: Sequence[str]) -> str:
    return f"collect_list({args[0]})"


def _rows(args: Sequence[str]) -> str:
    """All arguments but the last are the columns of the row."""
    return f"collect_list(struct({', '.join(f'{e} AS f{i}' for i, e in enumerate(args[:-1]))}))"


_INCREMENTAL = (
    _Fn("count", native=True, of_nothing=OfNothing.ZERO, result=Result.BIGINT),
    _Fn("count_if", native=True, of_nothing=OfNothing.ZERO, result=Result.BIGINT, accepts=Accepts.BOOLEANS),
    _Fn("approx_count_distinct", native=True, keeps=Keeps.DIFFERENT, of_nothing=OfNothing.ZERO, result=Result.BIGINT),
    _Fn("sum", native=True, overflows=True, **_NUMBERS),
    _Fn("avg", ("mean",), native=True, overflows=True, **_NUMBERS),
    _Fn("try_sum", **_NUMBERS),
    _Fn("try_avg", **_NUMBERS),
    _Fn("stddev_samp", ("stddev", "std"), native=True, **_NUMBERS),
    _Fn("stddev_pop", native=True, **_NUMBERS),
    _Fn("var_samp", ("variance",), native=True, **_NUMBERS),
    _Fn("var_pop", native=True, **_NUMBERS),
    _Fn("covar_samp", native=True, **_NUMBERS),
    _Fn("covar_pop", native=True, **_NUMBERS),
    _Fn("corr", native=True, **_NUMBERS),
    _Fn("bool_and", ("every",), native=True, result=Result.BOOLEAN, accepts=Accepts.BOOLEANS),
    _Fn("bool_or", ("any", "some"), native=True, result=Result.BOOLEAN, accepts=Accepts.BOOLEANS),
    _Fn("bit_and", native=True),
    _Fn("bit_or", native=True),
    _Fn("bit_xor", native=True),
    _Fn("min", native=True, **_CANDIDATES),
    _Fn("max", native=True, **_CANDIDATES),
    _Fn("min_by", native=True, most=2, decides=-1, **_CANDIDATES),
    _Fn("max_by", native=True, most=2, decides=-1, **_CANDIDATES),
    _Fn("first_value", ("first",), **_EDGE),
    _Fn("last_value", ("last",), **_EDGE),
    _Fn("any_value", **_EDGE),
    _Fn("mode", keeps=Keeps.WHOLE, result=Result.SAME, most=1, counts=True, within="mode"),
    _Fn("percentile", ("percentile_cont",), most=2, within="percentile_cont", **_PERCENTILE),
    _Fn("percentile_disc", within="percentile_disc", typed=_percentile, **_PERCENTILE),
    _Fn("percentile_approx", ("approx_percentile",), keeps=Keeps.WHOLE, counts=True, result=Result.OPEN),
    _Fn("median", path=Path.REWRITTEN, **_PERCENTILE),
    _Fn(
        "array_agg", ("collect_list",), keeps=Keeps.WHOLE, of_nothing=OfNothing.EMPTY, result=Result.LIST, most=1, ordered=True,
        typed=_list,
    ),
    _Fn("collect_set", keeps=Keeps.WHOLE, of_nothing=OfNothing.EMPTY, result=Result.LIST, most=1),
    _Fn("string_agg", ("listagg",), keeps=Keeps.WHOLE, result=Result.TEXT, constant="separator", ordered=True, typed=_joined),
)  # fmt: skip


def _recomputed(names: str, result: Result, of_nothing: OfNothing = OfNothing.UNKNOWN) -> tuple[AggregateFunction, ...]:
    return tuple(
        _Fn(n, path=Path.RECOMPUTED, keeps=Keeps.WHOLE, result=result, of_nothing=of_nothing) for n in names.split()
    )


_RECOMPUTED = (
    *_recomputed("kurtosis skewness regr_slope regr_intercept regr_r2 regr_avgx regr_avgy", Result.NUMBER, OfNothing.NULL),
    *_recomputed("regr_sxx regr_sxy regr_syy", Result.NUMBER, OfNothing.NULL),
    *_recomputed("regr_count", Result.BIGINT, OfNothing.ZERO),
    *_recomputed("histogram_numeric", Result.OPEN, OfNothing.NULL),
    *_recomputed("approx_top_k approx_top_k_accumulate approx_top_k_combine count_min_sketch", Result.OPEN),
    *_recomputed("hll_sketch_agg hll_union_agg theta_sketch_agg theta_union_agg theta_intersection_agg", Result.OPEN),
    *_recomputed("tuple_sketch_agg_double tuple_union_agg_double tuple_intersection_agg_double", Result.OPEN),
    *_recomputed("tuple_sketch_agg_integer tuple_union_agg_integer tuple_intersection_agg_integer", Result.OPEN),
    *_recomputed("bitmap_construct_agg bitmap_or_agg bitmap_and_agg", Result.OPEN),
    *_recomputed("schema_of_variant_agg collect_union vector_avg vector_sum", Result.OPEN),
)  # fmt: skip

_REFUSED = tuple(
    _Fn(f"kll_{what}_agg_{kind}", path=Path.REFUSED, of_nothing=OfNothing.UNKNOWN, result=Result.OPEN)
    for what in ("sketch", "merge")
    for kind in ("bigint", "double", "float")
)

ROWS_AT_MIN = _Fn("rows_at_min", decides=-1, result=Result.LIST, typed=_rows)
ROWS_AT_MAX = _Fn("rows_at_max", decides=-1, result=Result.LIST, typed=_rows)
"""Internal, not callable from statements: all rows with the extreme of the last argument. For append-only rows."""

AGGREGATES = {f.name: f for f in (*_INCREMENTAL, *_RECOMPUTED, *_REFUSED)}
"""The functions that a statement can call, by their canonical names."""
_BY_ANY_NAME = {name: f for f in AGGREGATES.values() for name in (f.name, *f.aliases)}
_OF_A_PLAN = AGGREGATES | {f.name: f for f in (ROWS_AT_MIN, ROWS_AT_MAX)}


def find_aggregate(name: str) -> AggregateFunction | None:
    """The function with a lower-case name or alias in a statement."""
    return _BY_ANY_NAME.get(name)


def aggregate(name: str) -> AggregateFunction:
    """The function of a call in a plan."""
    return _OF_A_PLAN[name]
