"""Joins, in the kernel: the union of both sides and one keyed operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.explain import describe
from penstock.plan.shown import shown, text
from penstock.spark.comparable import check_collated
from penstock.spark.session import jvm
from penstock.spark.typetext import type_text
from penstock.spark.windows import moment, restore, safe_micros

if TYPE_CHECKING:
    from penstock.spark.compile import Compiler

_AT_THE_END = (1 << 63) - 1
"""The LSN of an output row of a stateful operator: it arrives after all input of the epoch."""

_BEFORE_ALL = -9_000_000_000_000_000
"""A watermark (Unix ms) before every row, for rows that are never late. It does not overflow in microseconds."""


def join(c: Compiler, n: p.Join) -> DataFrame:
    return _regular(c, n) if n.time_bound is None else _interval(c, n)


_Joining = p.Join | p.AsofJoin | p.TemporalJoin | p.ProbeJoin | p.LookupJoin


def _sides(
    c: Compiler,
    n: _Joining,
    times: tuple[p.Expr, p.Expr] | None = None,
    *,
    arrival: bool = False,
    slack: tuple[int, int] | None = None,
) -> tuple[DataFrame, DataFrame, dict[str, object], DataType | None]:
    """Both inputs with keys of a common type (and times in microseconds, or the LSN of arrival), and the part of the spec that all joins share.

    `slack`: how many microseconds the rows of each side may be behind the watermark before their order of arrival matters.
    """
    frames, kinds, moments = [], [], []
    inputs = [c.node(n.left), c.node(n.right)]
    types = key_types(inputs, (n.left_keys, n.right_keys))
    for side, (node, df, keys) in enumerate(zip((n.left, n.right), inputs, (n.left_keys, n.right_keys), strict=True)):
        mark = "lr"[side]
        select = [F.col(f"`{x}`") for x in node.columns]
        exprs: list[p.Expr | str | None] = [None] * len(select)
        select += [
            F.expr(k.sql()).cast(t).alias(f"__{mark}k{i}") for i, (k, t) in enumerate(zip(keys, types, strict=True))
        ]
        exprs += keys
        if times is not None:
            time, kind, expr = safe_micros(df, times[side])
            kinds.append(kind)
            select.append(time.alias(f"__{mark}t"))
            exprs.append(expr)
            if slack is not None:
                moments.append(moment(df, time, slack[side]))
                select += moments[-1]
        if arrival:
            select.append(F.col("__lsn") if "__lsn" in df.columns else F.lit(_AT_THE_END).alias("__lsn"))
        select += [F.col("__weight")] if "__weight" in df.columns else []
        select += [F.col("__pwm")] if side == 0 and "__pwm" in df.columns else []
        exprs += [None] * (len(select) - len(exprs))
        frames.append(c.guards.select(n, df, select, exprs, shown(node)))
    spec: dict[str, object] = {
        "leftKeys": [f"__lk{i}" for i in range(len(n.left_keys))],
        "rightKeys": [f"__rk{i}" for i in range(len(n.right_keys))],
        "leftColumns": list(n.left.columns),
        "rightColumns": list(n.right.columns),
        "leftWeight": c.weight(frames[0]),
        "rightWeight": c.weight(frames[1]),
    }
    if times is not None:
        spec |= {"leftTime": "__lt", "rightTime": "__rt"}
    if moments and all(moments):
        spec |= {"leftMoment": ["__came", "__before"], "rightMoment": ["__came", "__before"]}
    return frames[0], frames[1], spec, kinds[0] if kinds else None


def _hand_on(left: p.Node, frame: DataFrame, spec: dict[str, object]) -> None:
    """Passes the arrival of the left rows, which determine the output and its time, to windows and lookups above.

    Not for rows that may be retracted, because another commit retracts them.
    """
    if not left.changelog:
        spec["leftColumns"] = [*left.columns, *(x for x in ("__lsn", "__pwm") if x in frame.columns)]


def key_types(frames: list[DataFrame], keys: tuple[tuple[p.Expr, ...], tuple[p.Expr, ...]]) -> list[DataType]:
    """The type in which Spark would compare each pair of keys."""
    if not keys[0]:
        return []
    left = [
        f.dataType for f in frames[0].select(*(F.expr(k.sql()).alias(f"k{i}") for i, k in enumerate(keys[0]))).schema
    ]
    right = [
        f.dataType for f in frames[1].select(*(F.expr(k.sql()).alias(f"k{i}") for i, k in enumerate(keys[1]))).schema
    ]
    # Spark finds no common type for two collations.
    check_collated("ON", (*left, *right))
    out = []
    for a, b in zip(left, right, strict=True):
        if a == b:
            out.append(a)
            continue
        one = frames[0].sparkSession.range(0)
        both = one.select(F.coalesce(F.lit(None).cast(a), F.lit(None).cast(b)).alias("k")).schema[0].dataType
        out.append(both)
    return out


def _out(n: p.Node, df: DataFrame) -> DataFrame:
    columns = [F.col(f"`{x}`") for x in n.columns]
    if "__pwm" in df.columns:
        columns.append(F.coalesce(F.col("__pwm"), F.lit(_BEFORE_ALL)).alias("__pwm"))
    return df.select(*columns, *(["__weight"] if n.changelog else []), *(["__lsn"] if "__lsn" in df.columns else []))


def _regular(c: Compiler, n: p.Join) -> DataFrame:
    left, right, spec, _ = _sides(c, n)
    spec |= {
        "kind": n.kind,
        "nullSafe": [i in n.null_safe for i in range(len(n.left_keys))],
        "residual": n.residual.sql() if n.residual is not None else None,
        "ttlMs": n.ttl_ms,
        "copies": not n.changelog,
    }
    if n.mark is not None:
        spec["mark"] = n.mark
    spec |= _failing(c, n, left, right)
    return _out(n, c.kernel("Join", spec, left, right))


def _interval(c: Compiler, n: p.Join) -> DataFrame:
    bound = n.time_bound
    assert bound is not None
    lags = _lag(n.left, bound.left_time), _lag(n.right, bound.right_time)
    left, right, spec, _ = _sides(
        c,
        n,
        (bound.left_time, bound.right_time),
        # A row is late if it is behind the watermark, or could no longer be kept.
        slack=(min(lags[0], bound.upper_ms + lags[1]) * 1000, min(lags[1], lags[0] - bound.lower_ms) * 1000),
    )
    spec |= {
        "kind": n.kind,
        "nullSafe": [i in n.null_safe for i in range(len(n.left_keys))],
        "residual": n.residual.sql() if n.residual is not None else None,
        "lowerMicros": bound.lower_ms * 1000,
        "upperMicros": bound.upper_ms * 1000,
        "leftLagMicros": lags[0] * 1000,
        "rightLagMicros": lags[1] * 1000,
        "copies": not n.changelog,
    }
    spec |= _failing(c, n, left, right)
    return _out(n, c.kernel("IntervalJoin", spec, left, right))


def _failing(c: Compiler, n: p.Join, left: DataFrame, right: DataFrame) -> dict[str, object]:
    """The spec of the error channel, if a pair of rows can fail in the residual."""
    if n.residual is None:
        return {}
    fields = [left.schema[x] for x in n.left.columns] + [right.schema[x] for x in n.right.columns]
    both = c.spark.createDataFrame([], StructType(fields))
    if not c.guards.fallible(both, [F.expr(n.residual.sql()).cast("boolean")]):
        return {}
    names = shown(n.left, n.right)
    return {"errors": c.guards.spec(names) | {"expression": text(n.residual, names)}}


def _lag(side: p.Node, time: p.Expr) -> int:
    return next((t.lag_ms for t in side.times if t.column == time.column), 0)


def _prompt(n: p.AsofJoin | p.ProbeJoin) -> None:
    if _lag(n.left, n.left_time) or _lag(n.right, n.right_time):
        raise fail(
            "PSK-1012",
            "The time of this join is computed in the same query, behind its watermark.",
            hint="Create a stream of the inner query, and join that.",
        )


def asof_join(c: Compiler, n: p.AsofJoin) -> DataFrame:
    if not n.eager:
        _prompt(n)
    times = n.left_time, n.right_time
    slack = None if n.eager else (0, 0)
    left, right, spec, _ = _sides(c, n, times, slack=slack)
    if n.eager:
        _hand_on(n.left, left, spec)
    spec |= {
        "kind": n.kind,
        "direction": n.direction,
        "strict": n.strict,
        "toleranceMicros": None if n.tolerance_ms is None else n.tolerance_ms * 1000,
        "mode": "eager" if n.eager else "watermark",
    }
    return _out(n, c.kernel("AsofJoin", spec, left, right))


def temporal_join(c: Compiler, n: p.TemporalJoin) -> DataFrame:
    left, right, spec, _ = _sides(c, n, (n.left_time, n.right_time))
    _hand_on(n.left, left, spec)
    spec |= {"kind": n.kind, "mode": "eager"}
    return _out(n, c.kernel("TemporalJoin", spec, left, right))


def lookup_join(c: Compiler, n: p.LookupJoin) -> DataFrame:
    left, right, spec, _ = _sides(c, n, arrival=True)
    _hand_on(n.left, left, spec)
    if c.hosted:
        made = _replicated(c, n, spec, left, right)
    else:
        spec |= {"kind": n.kind, "leftTime": "__lsn", "rightTime": "__lsn"}
        made = c.kernel("LookupJoin", spec, left, right)
    out = _out(n, made)
    if n.residual is None:
        return out
    if n.kind == "inner":
        return c.guards.where(n, out, F.expr(n.residual.sql()), n.residual)
    # There is at most one right row, so a row without a match has NULL in its right columns.
    matches = F.expr(n.residual.sql())
    select = [F.col(f"`{x}`") for x in n.left.columns]
    exprs: list[p.Expr | str | None] = [None] * len(select)
    select += [F.when(matches, F.col(f"`{x}`")).alias(x) for x in n.right.columns]
    exprs += [n.residual] * len(n.right.columns)
    hidden = [F.col(h) for h in c.hidden(out)]
    return c.guards.select(n, out, [*select, *hidden], [*exprs, *(None for _ in hidden)])


def _replicated(c: Compiler, n: p.LookupJoin, spec: dict[str, object], left: DataFrame, right: DataFrame) -> DataFrame:
    """The join with a replica of the table at the left rows, which need no shuffle."""
    c.replicas.append(c.current)
    types = [type_text(left.schema[f"__lk{i}"].dataType) for i in range(len(n.left_keys))]
    table = [describe(x) for x in n.right.walk()]
    made = jvm().Lookup.join(
        left._jdf,
        right._jdf,
        spec["leftKeys"],
        spec["rightKeys"],
        spec["leftColumns"],
        spec["rightColumns"],
        json.dumps([table, [k.sql() for k in n.right_keys], types]),
        n.kind == "inner",
    )
    return DataFrame(made, left.sparkSession)


def probe_join(c: Compiler, n: p.ProbeJoin) -> DataFrame:
    timed = {t.column for t in (*n.left.times, *n.right.times)}
    eager = n.left_time.column not in timed or n.right_time.column not in timed
    if not eager:
        _prompt(n)
    # A probe before the left row may be due when the row arrives.
    slack = None if eager else (min(0, *n.offsets) * 1000, 0)
    times = n.left_time, n.right_time
    left, right, spec, kind = _sides(c, n, times, slack=slack)
    assert kind is not None
    if eager:
        _hand_on(n.left, left, spec)
    spec |= {
        "offsetsMicros": [o * 1000 for o in n.offsets],
        "offsetName": n.offset_ms,
        "probeName": n.probe_ts,
        "mode": "eager" if eager else "watermark",
    }
    out = c.kernel("ProbeJoin", spec, left, right)
    return _out(n, out.withColumn(n.probe_ts, restore(F.col(f"`{n.probe_ts}`"), kind)))
