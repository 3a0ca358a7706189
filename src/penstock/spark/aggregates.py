"""Aggregates, DISTINCT and the temporal filter: native if Spark's operator gives the right answer, otherwise in the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.column import Column
from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    StringType,
    YearMonthIntervalType,
)
from sqlglot import exp

from penstock.plan import nodes as p
from penstock.plan.dialect import DIALECT
from penstock.plan.functions import ROWS_AT_MAX, ROWS_AT_MIN, Accepts, find_aggregate
from penstock.plan.shown import call_text, shown
from penstock.spark.comparable import check_collated, check_types
from penstock.spark.guards import told
from penstock.spark.session import jvm
from penstock.spark.typetext import type_text
from penstock.spark.windows import assign, micros, moment, restore, safe_micros

if TYPE_CHECKING:
    from penstock.spark.compile import Compiler

_SUMMABLE = 28
"""The precision of decimals of which ten billion can be summed in Spark's largest decimal."""

TOO_LARGE = "the sum does not fit into BIGINT"

_FOR_EVER = 1 << 60
"""Milliseconds for which a session without a watermark stays open."""


def aggregate(c: Compiler, n: p.Aggregate) -> DataFrame:
    df = c.node(n.child)
    if n.session is not None:
        return _session(c, n, df)
    # Rows that wait for the watermark below may arrive or be retracted after their window would have closed, so keep such a group.
    kept = n.outlived or (n.child.waits and not n.child.punctual)
    closes = n.window_end is not None and _timed(n, n.window_end) and not kept
    end = next((k for k in n.keys if k.name == n.window_end), None)
    if closes and end is not None and "__pwm" in df.columns:
        df = _without_late(c, n, df, end)
    native = c.stateful == 1 and not (c.exact_state or c.hosted) and not n.child.changelog and _all_native(df, n)
    if closes and n.mode is p.EmitMode.CLOSE and native:
        return _native(c, n, df)
    return _kernel(c, n, df, end if closes else None)


def _timed(n: p.Aggregate, name: str) -> bool:
    key = next(k for k in n.keys if k.name == name)
    return any(t.column == key.expr.column for t in n.child.times)


def _patience(n: p.Aggregate, time: p.Expr) -> int:
    """Milliseconds between a window's end and its close. Operators below that wait for the watermark have already waited for late rows."""
    lag = next((t.lag_ms for t in n.child.times if t.column == time.column), 0)
    return lag if n.child.punctual else lag + n.lateness_ms


def _all_native(df: DataFrame, n: p.Aggregate) -> bool:
    if not all(a.function.native and not a.recomputed and not a.distinct and not a.order for a in n.aggs):
        return False
    # Among sums that can overflow, Spark can compute those of integers in two halves.
    types = argument_types(df, n.aggs)
    return all(not overflows(a.func, t) or isinstance(t[0], LongType) for a, t in zip(n.aggs, types, strict=True))


def _without_late(c: Compiler, n: p.Aggregate, df: DataFrame, end: p.Named) -> DataFrame:
    if n.late_to is not None:
        with c.guards.silent():
            c.late = _late_rows(c, n)
    late = _is_late(df, end.expr.sql(), _patience(n, end.expr))
    return df.where(~(late & c.counts_late(F.lit(1).cast("bigint"))))


def _is_late(df: DataFrame, end: str, patience_ms: int) -> Column:
    """Whether a window, which closes `patience_ms` after its end, had closed when the row arrived."""
    time, _ = micros(df, end)
    return time <= F.col("__pwm") * 1000 - patience_ms * 1000


def _late_rows(c: Compiler, n: p.Aggregate) -> DataFrame:
    """The input rows of the aggregate whose windows have all closed, before window assignment."""
    below = n.child
    while not isinstance(below, p.WindowAssign):
        (below,) = below.children
    windows = assign(c, c.node(below.child), below)
    if below.kind != "tumble":
        windows = _last_window(windows, below)
    late = windows.where(_is_late(windows, f"`{below.end}`", _patience(n, p.col(below.end))))
    return late.select(*(F.col(f"`{x}`") for x in below.child.columns))


def _last_window(windows: DataFrame, node: p.WindowAssign) -> DataFrame:
    """The last window of each row, found without state: no later window covers the row."""
    time, _ = micros(windows, node.time.sql())
    end, _ = micros(windows, f"`{node.end}`")
    start, _ = micros(windows, f"`{node.start}`")
    if node.kind == "hop":
        assert node.step is not None
        return windows.where(start + node.step.micros > time)
    return windows.where(end == start + node.size.micros)


def _native(c: Compiler, n: p.Aggregate, df: DataFrame) -> DataFrame:
    end = next(k for k in n.keys if k.name == n.window_end)
    start, size = _start_of(n, end)
    derived = {end.name: 0} if start is None else {end.name: 0, start: size}
    others = [k for k in n.keys if k.name not in derived]
    types = argument_types(df, n.aggs)
    df, keys, calls = _computed(c, n, df, others, types)
    end_micros, kind = micros(df, end.expr.sql())
    beyond = (n.lateness_ms + int(jvm().EventTime.SHIFT)) * 1000
    # Spark closes a group when the key with the watermark metadata is not after the watermark. A numeric key, unlike the struct of `window`,
    # lets Spark aggregate in its fast hash map.
    closing = F.timestamp_micros(end_micros + beyond)
    df = df.withColumn("__w", closing.alias("__w", metadata={"spark.watermarkDelayMs": 0}))
    grouped = df.groupBy(F.col("__w"), *(F.expr(e).alias(k.name) for k, e in zip(others, keys, strict=True)))
    sums = {a.name for a, t in zip(n.aggs, types, strict=True) if overflows(a.func, t)}
    aggs = [x for a, call in zip(n.aggs, calls, strict=True) for x in _accumulated(a, call, a.name in sums)]
    out = c.native("groupBy", grouped.agg(*(aggs or [F.count(F.lit(1)).alias("__n")])))
    closed = F.expr("unix_micros(__w)") - beyond
    restored = [
        restore(closed - derived[k.name], kind).alias(k.name) if k.name in derived else F.col(f"`{k.name}`")
        for k in n.keys
    ]
    if not sums:
        return out.select(*restored, *(F.col(f"`{a.name}`") for a in n.aggs))
    out = out.select(*restored, *(F.col(f"`{x}`") for x in out.columns if x not in ("__w", *(k.name for k in n.keys))))
    names = shown(n.child)
    results = [_total(a.name).alias(a.name) if a.name in sums else F.col(f"`{a.name}`") for a in n.aggs]
    exprs = [call_text(a, names) if a.name in sums else None for a in n.aggs]
    select = [F.col(f"`{k.name}`") for k in n.keys]
    return c.guards.select(n, out, [*select, *results], [*(None for _ in select), *exprs], key_names(n))


def _computed(
    c: Compiler, n: p.Aggregate, df: DataFrame, keys: Sequence[p.Named], types: Sequence[Sequence[DataType]]
) -> tuple[DataFrame, list[str], list[_Call]]:
    """The input of a native aggregate, with the keys and calls over it; if one of them can fail, all are computed as columns."""
    calls = [
        _Call(a.func, arguments(a, t), a.filter.sql() if a.filter else None) for a, t in zip(n.aggs, types, strict=True)
    ]
    select: list[Column] = []
    exprs: list[p.Expr | str | None] = []
    named: list[_Call] = []
    for i, k in enumerate(keys):
        select.append(F.expr(k.expr.sql()).alias(f"__k{i}"))
        exprs.append(told(k.expr))
    names = shown(n.child)
    for i, (a, call) in enumerate(zip(n.aggs, calls, strict=True)):
        when = call.filter
        args = [e if when is None else f"CASE WHEN {when} THEN {e} END" for e in call.args]
        columns = [f"__a{i}_{j}" for j in range(len(args))] + ([f"__f{i}"] if when is not None else [])
        select += [F.expr(e).alias(x) for e, x in zip([*args, *([when] if when else [])], columns, strict=True)]
        exprs += [call_text(a, names)] * len(columns)
        named.append(_Call(a.func, [f"__a{i}_{j}" for j in range(len(args))], f"__f{i}" if when is not None else None))
    kept = [F.col(f"`{x}`") for x in df.columns]
    made = c.guards.select(n, df, [*kept, *select], [*(None for _ in kept), *exprs])
    if c.guards.guards(made):
        return made, [f"__k{i}" for i in range(len(keys))], named
    return df, [k.expr.sql() for k in keys], calls


class _Call(NamedTuple):
    """A native aggregate over expressions of its input."""

    func: str
    args: list[str]
    filter: str | None

    def over(self, *args: str) -> Column:
        where = f" FILTER (WHERE {self.filter})" if self.filter else ""
        return F.expr(f"{self.func}({', '.join(args) or '*'}){where}")


_LOW = (1 << 32) - 1


def _accumulated(a: p.AggCall, call: _Call, wide: bool) -> list[Column]:
    """The columns that Spark accumulates for a call. The halves of a sum are summed separately and cannot overflow; only the sum can."""
    if not wide:
        return [call.over(*call.args).alias(a.name)]
    high, low = (f"shiftright({call.args[0]}, 32)", f"{call.args[0]} & {_LOW}L")
    return [call.over(high).alias(f"{a.name}__high"), call.over(low).alias(f"{a.name}__low")]


def _total(name: str) -> Column:
    high = f"(`{name}__high` + shiftright(`{name}__low`, 32))"
    fits = f"{high} BETWEEN {-(1 << 31)} AND {(1 << 31) - 1} OR {high} IS NULL"
    value = f"shiftleft({high}, 32) | (`{name}__low` & {_LOW}L)"
    return F.expr(f"CASE WHEN {fits} THEN {value} ELSE CAST(raise_error('{TOO_LARGE}') AS BIGINT) END")


def key_names(n: p.Aggregate) -> dict[str, str]:
    """The user-visible names of a group's columns."""
    bounds = (n.session.start, n.session.end) if n.session else ()
    names = shown(n)
    return {k: names[k] for k in (*(k.name for k in n.keys), *bounds)}


def _start_of(n: p.Aggregate, end: p.Named) -> tuple[str | None, int]:
    """The key that is the start of the same window, and the window's length, if the start follows from the end."""
    for below in n.child.walk():
        if isinstance(below, p.WindowAssign) and below.end == end.expr.column:
            if below.kind == "cumulate" or below.size.months:
                return None, 0
            return next((k.name for k in n.keys if k.expr.column == below.start), None), below.size.micros
    return None, 0


def _typed_call(a: p.AggCall) -> str:
    """The call in the form whose type Spark derives; ordered forms have the same type as their plain ones."""
    args = [x.sql() for x in a.args]
    return f"{a.func}({', '.join(args)})" if a.recomputed else a.function.typed_call(args)


def agg_specs(
    df: DataFrame, aggs: tuple[p.AggCall, ...], names: Mapping[str, str]
) -> tuple[list[Column], list[str], list[dict[str, Any]]]:
    """The columns to compute before a kernel aggregate, the text of each column's call, and the specs of its functions."""
    if not aggs:
        return [], [], []
    results = df.agg(*(F.expr(_typed_call(a)).alias(f"t{i}") for i, a in enumerate(aggs))).schema
    columns: list[Column] = []
    texts: list[str] = []
    specs: list[dict[str, Any]] = []
    for i, (a, types) in enumerate(zip(aggs, argument_types(df, aggs), strict=True)):
        check_types("DISTINCT", types[: len(a.args)] if a.distinct else ())
        check_types("ORDER BY", types[len(a.args) :])
        if a.recomputed:
            made, spec = _recomputed(a, i, names)
            columns += made
            texts += [call_text(a, names)] * len(made)
            specs.append(spec | {"type": type_text(results[i].dataType)})
            continue
        check_collated(f"{a.func}()", types)
        exprs = arguments(a, types)
        if a.filter is not None:
            exprs = _filtered(a, exprs, a.filter.sql())
        args = [f"__a{i}_{j}" for j in range(len(exprs))]
        columns += [F.expr(e).alias(name) for e, name in zip(exprs, args, strict=True)]
        order = []
        within = a.function.within is not None
        for j, (k, t) in enumerate(zip(() if within else a.order, types[len(a.args) :], strict=not within)):
            columns.append(F.expr(_taken(a.function.accepts, k.expr.sql(), t)).alias(f"__o{i}_{j}"))
            order.append({"col": f"__o{i}_{j}", "desc": k.desc, "nullsFirst": k.nulls_first})
        texts += [call_text(a, names)] * (len(columns) - len(texts))
        specs.append(
            {
                "name": a.name,
                "func": a.func,
                "args": args,
                "distinct": a.distinct,
                "type": type_text(results[i].dataType),
                "order": order,
                "desc": within and bool(a.order),
                "ignoreNulls": a.ignore_nulls,
                "fails": call_text(a, names) if overflows(a.func, types) else None,
            }
        )
    return columns, texts, specs


def _recomputed(a: p.AggCall, i: int, names: Mapping[str, str]) -> tuple[list[Column], dict[str, Any]]:
    """The columns and the spec of a call that Spark recomputes from all rows: constants stay in the call, everything else becomes a column."""
    held = [j for j, x in enumerate(a.args) if x.refs] or [0]
    exprs = {f"__a{i}_{j}": a.args[j].sql() for j in held}
    given = [f"`__a{i}_{j}`" if j in held else x.sql() for j, x in enumerate(a.args)]
    if a.filter is not None:
        exprs[f"__a{i}_f"] = f"CASE WHEN {a.filter.sql()} THEN true END"
    spec = {
        "name": a.name,
        "func": "recomputed",
        "args": list(exprs),
        "call": f"{a.func}({', '.join(given)})",
        "filtered": a.filter is not None,
        "distinct": a.distinct,
        "fails": call_text(a, names),
    }
    return [F.expr(e).alias(name) for name, e in exprs.items()], spec


def argument_types(df: DataFrame, aggs: Sequence[p.AggCall]) -> list[list[DataType]]:
    """The types of each call's arguments and sort keys."""
    exprs = [[*a.args, *(k.expr for k in a.order)] for a in aggs]
    flat = [F.expr(e.sql()).alias(f"x{i}") for i, e in enumerate(e for some in exprs for e in some)]
    types = iter([f.dataType for f in df.select(*flat).schema.fields] if flat else [])
    return [[next(types) for _ in some] for some in exprs]


def arguments(a: p.AggCall, types: Sequence[DataType]) -> list[str]:
    """The arguments of a call, cast to the types that it accepts."""
    return [_taken(a.function.accepts, x.sql(), t) for x, t in zip(a.args, types, strict=False)]


def _taken(accepts: Accepts, expr: str, kind: DataType) -> str:
    """Casts a string that a function accepts as a number or boolean, so that a failing cast only affects its row."""
    cast = isinstance(kind, StringType) and accepts is not Accepts.ANYTHING
    return f"CAST({expr} AS {accepts.value})" if cast else expr


def overflows(func: str, types: Sequence[DataType]) -> bool:
    """True if the result can overflow its type; for smaller integers that would need 2³² rows."""
    function = find_aggregate(func)
    if function is None or not function.overflows:
        return False
    match types[0]:
        case LongType():
            return func == "sum"
        case DecimalType() as decimal:
            return decimal.precision > _SUMMABLE
        case DayTimeIntervalType() | YearMonthIntervalType():
            return True
        case _:
            return False


def _filtered(a: p.AggCall, args: list[str], when: str) -> list[str]:
    """The arguments, with NULL in filtered-out rows where the kernel expects it."""
    if a.function.edge and not a.ignore_nulls:
        return [*args, f"CASE WHEN {when} THEN true END"]
    if not args:
        return [f"CASE WHEN {when} THEN 1 END"]
    at = (a.function.decides or 0) % len(args)
    return [f"CASE WHEN {when} THEN {e} END" if i == at else e for i, e in enumerate(args)]


def _kernel(c: Compiler, n: p.Aggregate, df: DataFrame, end: p.Named | None) -> DataFrame:
    args, texts, specs = agg_specs(df, n.aggs, shown(n.child))
    weight = c.weight(df)
    keys = [F.expr(k.expr.sql()).alias(k.name) for k in n.keys]
    hidden = [F.col("__weight")] if weight else []
    exprs = [*(told(k.expr) for k in n.keys), *texts, *(None for _ in hidden)]
    df = c.guards.select(n, df, [*keys, *args, *hidden], exprs)
    always = not n.keys
    if always:
        df, weight = _with_presence(c, df), "__weight"
    spec: dict[str, object] = {
        "keys": [k.name for k in n.keys],
        "weight": weight,
        "aggs": specs,
        "mode": n.mode.value,
        "windowEnd": end.name if end else None,
        "latenessMs": _patience(n, end.expr) if end else 0,
        "punctual": n.child.punctual,
        "always": always,
    }
    spec |= _failing(c, n, specs)
    out = c.kernel("Aggregate", spec, df)
    return out if n.changelog else out.drop("__weight")


def _failing(
    c: Compiler, n: p.Aggregate, specs: Sequence[Mapping[str, Any]], bounds: str | None = None
) -> dict[str, object]:
    """The spec of the error channel for groups whose value can overflow its type."""
    if not any(s["fails"] for s in specs):
        return {}
    return {"errors": c.guards.spec(key_names(n)) | {"bounds": bounds}}


def _with_presence(c: Compiler, df: DataFrame) -> DataFrame:
    """Adds a row of weight zero, which creates the group: an aggregate without keys has a row even over an empty input."""
    if "__weight" not in df.columns:
        df = df.withColumn("__weight", F.lit(1).cast("bigint"))
    nulls = [F.lit(None).cast(f.dataType).alias(f.name) for f in df.schema.fields if f.name != "__weight"]
    return df.unionAll(c.unit().select(*nulls, F.lit(0).cast("bigint").alias("__weight")))


def _session(c: Compiler, n: p.Aggregate, df: DataFrame) -> DataFrame:
    assert n.session is not None
    time, kind, unsure = safe_micros(df, n.session.time)
    args, texts, specs = agg_specs(df, n.aggs, shown(n.child))
    weight = c.weight(df)
    row = F.struct(*(F.col(f"`{x}`") for x in n.child.columns)).alias("__row") if n.late_to else None
    select = [F.expr(k.expr.sql()).alias(k.name) for k in n.keys] + args + [time.alias("__t")]
    exprs = [*(told(k.expr) for k in n.keys), *texts, unsure]
    select += ([row] if row is not None else []) + ([F.col("__weight")] if weight else [])
    came = moment(df, time, _patience(n, n.session.time) * 1000)
    select += came
    exprs += [None] * (len(select) - len(exprs))
    df = c.guards.select(n, df, select, exprs).where("__t IS NOT NULL")
    timed = not n.outlived and any(t.column == n.session.time.column for t in n.child.times)
    spec: dict[str, object] = {
        "keys": [k.name for k in n.keys],
        "weight": weight,
        "time": "__t",
        "gapMicros": n.session.gap.micros,
        "start": n.session.start,
        "end": n.session.end,
        "aggs": specs,
        "mode": n.mode.value,
        "latenessMs": _patience(n, n.session.time) if timed else _FOR_EVER,
        "punctual": n.child.punctual,
        "row": "__row" if n.late_to else None,
        "lsn": "__came" if came else None,
        "before": "__before" if came else None,
    }
    spec |= _failing(c, n, specs, type_text(kind))
    out = c.kernel("Session", spec, df)
    late = F.col("__late") & c.counts_late(F.col("__weight"))
    extra = ["__weight"] if n.changelog else []
    if n.late_to is not None and c.carries_late:
        out = out.withColumn("__late", F.when(late, F.col("__row")))
        extra.append("__late")
    else:
        if n.late_to is not None:
            c.late = out.where("__late").select(*(F.col(f"__row.`{x}`").alias(x) for x in n.child.columns))
        out = out.where(~late)
    keys = [F.col(f"`{k.name}`") for k in n.keys]
    bounds = [restore(F.col(f"`{b}`"), kind).alias(b) for b in (n.session.start, n.session.end)]
    return out.select(*keys, *bounds, *(F.col(f"`{a.name}`") for a in n.aggs), *extra)


def extremes(c: Compiler, n: p.Extremes) -> DataFrame:
    """Compiled as an aggregate that returns the rows themselves."""
    rows = p.AggCall(
        "__rows", (ROWS_AT_MIN if n.least else ROWS_AT_MAX).name, (*(p.col(x) for x in n.columns), n.value)
    )
    keys = tuple(p.Named(f"__k{i}", p.col(k)) for i, k in enumerate(n.keys))
    end = next(k.name for k in keys if k.expr.column == n.window_end)
    out = aggregate(c, p.Aggregate(n.child, keys, (rows,), p.EmitMode.CLOSE, window_end=end, lateness_ms=n.lateness_ms))
    return out.select(F.inline("__rows").alias(*n.columns))


def distinct(c: Compiler, n: p.Distinct) -> DataFrame:
    df = c.node(n.child)
    weight = c.weight(df)
    before = "__pwm" if "__pwm" in df.columns and not n.child.changelog else None
    df = df.select(*(F.col(f"`{x}`") for x in n.columns), *(x for x in (weight, before) if x))
    spec: dict[str, object] = {
        "columns": list(n.columns),
        "weight": weight,
        "atOnce": n.at_once,
        "before": before,
    }
    out = c.kernel("DistinctRows", spec, df)
    return out if n.changelog else out.drop("__weight")


def temporal_filter(c: Compiler, n: p.TemporalFilter) -> DataFrame:
    df = c.node(n.child)
    weight = c.weight(df)
    enter = _bound(df, n.enter_ms)
    leave = _bound(df, n.exit_ms)
    select = [F.col(f"`{x}`") for x in n.columns]
    exprs: list[p.Expr | str | None] = [None] * len(select)
    select += [enter.cast("bigint").alias("__enter"), leave.cast("bigint").alias("__exit")]
    exprs += [n.enter_ms, n.exit_ms]
    if weight:
        select.append(F.col("__weight"))
        exprs.append(None)
    df = c.guards.select(n, df, select, exprs)
    spec: dict[str, object] = {"columns": list(n.columns), "weight": weight, "enter": "__enter", "exit": "__exit"}
    return c.kernel("TemporalFilter", spec, df)


def _bound(df: DataFrame, expr: p.Expr | None) -> Column:
    if expr is None:
        return F.lit(None)

    def convert(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Anonymous) and node.name.lower() == "__millis":
            inner = node.expressions[0].sql(dialect=DIALECT)
            _, kind = micros(df, inner)
            text = f"unix_millis({inner})" if kind.typeName() == "timestamp" else inner
            if kind.typeName() == "timestamp_ntz":
                text = f"unix_millis(CAST({inner} AS TIMESTAMP))"
            parsed: exp.Expression = exp.maybe_parse(text, dialect=DIALECT)
            return parsed
        return node

    return F.expr(expr.node.copy().transform(convert).sql(dialect=DIALECT))
