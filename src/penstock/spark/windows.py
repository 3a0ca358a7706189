"""Window bounds as native Spark expressions.

Windows lie on an integer axis: microseconds since the epoch, or months since year 0 for calendar windows. On it every kind
is arithmetic: TUMBLE is HOP with slide = size.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.column import Column
from pyspark.sql.types import DataType, IntegerType, LongType, TimestampNTZType, TimestampType

from penstock.errors import fail
from penstock.plan.nodes import Interval, WindowAssign


def micros(df: DataFrame, expr: str) -> tuple[Column, DataType]:
    """A time expression as microseconds since the epoch, with the type that it had."""
    kind = df.select(F.expr(expr)).schema[0].dataType
    if isinstance(kind, TimestampType):
        return F.expr(f"unix_micros({expr})"), kind
    if isinstance(kind, TimestampNTZType):
        return F.expr(f"unix_micros(CAST({expr} AS TIMESTAMP))"), kind
    if isinstance(kind, LongType | IntegerType):
        return F.expr(f"CAST({expr} AS BIGINT) * 1000L"), LongType()
    raise fail("PSK-2002", f"Event time must be TIMESTAMP or BIGINT, but {expr} is {kind.simpleString()}.")


def restore(value: Column, kind: DataType) -> Column:
    """Microseconds back as the type that the time expression had."""
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(value)
    if isinstance(kind, TimestampNTZType):
        return F.timestamp_micros(value).cast("timestamp_ntz")
    return F.floor(value / F.lit(1000))


def moment(df: DataFrame, time: Column, slack_micros: int = 0) -> list[Column]:
    """When a row came that is not ahead of the watermark in force: the two columns of the kernel's `Moment`, NULL for all other rows.

    `slack_micros`: how far behind the watermark a row may be. Nothing if the frame does not say when its rows came.
    """
    if "__pwm" not in df.columns:
        return []
    behind = time <= F.col("__pwm") * 1000 - slack_micros
    lsn = F.col("__lsn") if "__lsn" in df.columns else F.col("__pwm")
    return [F.when(behind, lsn).alias("__came"), F.when(behind, F.col("__pwm")).alias("__before")]


def assign(df: DataFrame, node: WindowAssign) -> DataFrame:
    """Adds the bounds of every window that covers a row (one output row each); rows without a time are dropped."""
    time, kind = micros(df, node.time.sql())
    calendar = node.size.months > 0
    df = df.withColumn("__t", time).where("__t IS NOT NULL")
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
