"""Window bounds as native Spark expressions.

Window bounds are integers: microseconds since the Unix epoch, or months since year 0 for calendar windows. So every kind
of window is arithmetic; TUMBLE is HOP with slide = size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.column import Column
from pyspark.sql.types import DataType, IntegerType, LongType, TimestampNTZType, TimestampType

from penstock.errors import fail
from penstock.plan.nodes import Expr, Interval, WindowAssign
from penstock.spark.guards import told

if TYPE_CHECKING:
    from penstock.spark.compile import Compiler

_FARTHEST_MS = (1 << 62) // 1000
"""The largest valid time in milliseconds: computations on times must not overflow."""


def micros(df: DataFrame, expr: str) -> tuple[Column, DataType]:
    """A time expression as microseconds since the Unix epoch, with its original type."""
    kind = df.select(F.expr(expr)).schema[0].dataType
    if isinstance(kind, TimestampType):
        return F.expr(f"unix_micros({expr})"), kind
    if isinstance(kind, TimestampNTZType):
        return F.expr(f"unix_micros(CAST({expr} AS TIMESTAMP))"), kind
    if isinstance(kind, LongType | IntegerType):
        return F.expr(f"CAST({expr} AS BIGINT) * 1000L"), LongType()
    raise fail("PSK-2002", f"Event time must be TIMESTAMP or BIGINT, but {expr} is {kind.simpleString()}.")


def compared_micros(df: DataFrame, expr: str) -> Column:
    """The same for a time that is only compared with the watermark: an out-of-range time is clamped instead of an error."""
    found, kind = micros(df, expr)
    if not isinstance(kind, LongType):
        return found
    time, most = f"CAST({expr} AS BIGINT)", f"{_FARTHEST_MS}L"
    return F.expr(f"CASE WHEN {time} > {most} THEN {most} WHEN {time} < -{most} THEN -{most} ELSE {time} END * 1000L")


def safe_micros(df: DataFrame, time: Expr) -> tuple[Column, DataType, Expr | None]:
    """The same for a column of a guarded projection, with the expression that can fail."""
    found, kind = micros(df, time.sql())
    if not isinstance(kind, LongType):
        return found, kind, told(time)
    far = f"CAST({time.sql()} AS BIGINT) NOT BETWEEN -{_FARTHEST_MS} AND {_FARTHEST_MS}"
    return F.when(F.expr(far), F.raise_error(F.lit("the time is out of range"))).otherwise(found), kind, time


def restore(value: Column, kind: DataType) -> Column:
    """Converts microseconds back to the type of the time expression."""
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(value)
    if isinstance(kind, TimestampNTZType):
        return F.timestamp_micros(value).cast("timestamp_ntz")
    return F.floor(value / F.lit(1000))


def moment(df: DataFrame, time: Column, slack_micros: int = 0) -> list[Column]:
    """The arrival of a row that is not ahead of the watermark in force: the two columns of the kernel's `Moment`, NULL for all other rows.

    `slack_micros`: how far behind the watermark a row may be. Empty if the frame does not have the arrival of its rows.
    """
    if "__pwm" not in df.columns:
        return []
    # A watermark never overflows in microseconds. An expression that could would be guarded.
    bound = F.try_multiply(F.col("__pwm"), F.lit(1000))
    behind = time <= (F.try_subtract(bound, F.lit(slack_micros)) if slack_micros else bound)
    lsn = F.col("__lsn") if "__lsn" in df.columns else F.col("__pwm")
    return [F.when(behind, lsn).alias("__came"), F.when(behind, F.col("__pwm")).alias("__before")]


def assign(c: Compiler, df: DataFrame, node: WindowAssign) -> DataFrame:
    """Adds the bounds of every window that covers a row (one output row each); rows without a time are dropped."""
    time, kind, expr = safe_micros(df, node.time)
    calendar = node.size.months > 0
    if expr is None:
        df = df.withColumn("__t", time)
    else:
        kept = [F.col(f"`{x}`") for x in df.columns]
        df = c.guards.select(node, df, [*kept, time.alias("__t")], [*(None for _ in kept), expr])
    df = df.where("__t IS NOT NULL")
    axis = "(year(timestamp_micros(__t)) * 12L + month(timestamp_micros(__t)) - 1L)" if calendar else "__t"
    size, step = _length(node.size, calendar), _length(node.step or node.size, calendar)
    offset = _length(node.offset, calendar)
    if size <= 0 or step <= 0 or (node.kind == "cumulate" and size % step):
        raise fail("PSK-2003", "The size of a window must be positive, and CUMULATE's size a multiple of its step.")
    base = f"({axis} - pmod({axis} - {offset}L, {{0}}L))"
    if node.kind == "tumble":
        df = df.withColumn("__s", F.expr(base.format(size))).withColumn("__e", F.expr(f"__s + {size}L"))
    elif node.kind == "hop":
        count = -(-size // step)
        df = df.withColumn("__l", F.expr(base.format(step)))
        starts = f"transform(sequence(0, {count - 1}), i -> __l - CAST({count - 1} - i AS BIGINT) * {step}L)"
        if size % step:
            starts = f"filter({starts}, s -> s + {size}L > {axis})"
        df = df.withColumn("__s", F.explode(F.expr(starts))).withColumn("__e", F.expr(f"__s + {size}L")).drop("__l")
    else:
        df = df.withColumn("__s", F.expr(base.format(size)))
        first = f"(({axis} - __s) div {step}L) + 1L"
        df = df.withColumn(
            "__e", F.explode(F.expr(f"transform(sequence({first}, {size // step}L), j -> __s + j * {step}L)"))
        )
    start, end = (_unaxis(c, calendar) for c in ("__s", "__e"))
    df = df.withColumn(node.start, restore(F.expr(start), kind)).withColumn(node.end, restore(F.expr(end), kind))
    return df.drop("__t", "__s", "__e")


def _length(interval: Interval, calendar: bool) -> int:
    if calendar != (interval.months > 0) and (interval.months or interval.micros):
        raise fail("PSK-2003", "Calendar months and exact lengths cannot be mixed in one window.")
    return interval.months if calendar else interval.micros


def _unaxis(column: str, calendar: bool) -> str:
    if not calendar:
        return column
    return f"unix_micros(make_timestamp(CAST({column} div 12 AS INT), CAST({column} % 12 + 1 AS INT), 1, 0, 0, 0))"
