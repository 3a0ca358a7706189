"""Types that Spark does not write to Arrow: the untyped elements of `array()`, and month intervals."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from penstock.catalog.types import to_arrow
from penstock.spark.typetext import type_text

_MONTHS = (YearMonthIntervalType, CalendarIntervalType)


def holdable(df: DataFrame) -> DataFrame:
    """The frame with types that Arrow supports. In Spark the elements of `array()` have no type and are never NULL, which Arrow rejects."""
    fields = df.schema.fields
    untyped = (_has(f.dataType, NullType) for f in fields if not (f.nullable and isinstance(f.dataType, NullType)))
    if not any(untyped) and not any(_has(f.dataType, _MONTHS) for f in fields):
        return df
    numbered = df.toDF(*(f"c{i}" for i in range(len(fields))))
    return numbered.select([_held(F.col(f"c{i}"), f.dataType).alias(f.name) for i, f in enumerate(fields)])


def _held(column: Column, kind: DataType) -> Column:
    if isinstance(kind, YearMonthIntervalType):
        return column.cast(YearMonthIntervalType(1, 1)).cast("int")
    if isinstance(kind, CalendarIntervalType):
        months = F.extract(F.lit("YEAR"), column) * 12 + F.extract(F.lit("MONTH"), column)
        minutes = F.extract(F.lit("HOUR"), column) * 60 + F.extract(F.lit("MINUTE"), column)
        seconds = minutes * 60 + F.extract(F.lit("SECOND"), column)
        parts = (
            months.cast("int"),
            F.extract(F.lit("DAY"), column).cast("int"),
            (seconds * 1_000_000_000).cast("bigint"),
        )
        return F.when(column.isNotNull(), F.array(*(p.cast("bigint") for p in parts)))
    if _has(kind, YearMonthIntervalType):
        return _held_inside(column, kind)
    return F.lit(None) if isinstance(kind, NullType) else column.cast(_nullable(kind))


def _held_inside(column: Column, kind: DataType) -> Column:
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda e: _held(e, kind.elementType))
    if isinstance(kind, MapType):
        keys = F.transform(F.map_keys(column), lambda e: _held(e, kind.keyType))
        return F.map_from_arrays(keys, F.transform(F.map_values(column), lambda e: _held(e, kind.valueType)))
    assert isinstance(kind, StructType)
    parts = [_held(column.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
    return F.when(column.isNotNull(), F.struct(*parts))


def restored(column: pa.ChunkedArray, kind: DataType) -> pa.ChunkedArray:
    """A result column, converted back to the Arrow type of its Spark type."""
    if not isinstance(kind, CalendarIntervalType):
        wanted = arrow_type(kind)
        return column.cast(wanted) if column.type != wanted else column
    found = [None if v is None else tuple(v) for v in column.to_pylist()]
    return pa.chunked_array([pa.array(found, pa.month_day_nano_interval())])


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a result column; raises PSK-1013 if there is none."""
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, MapType):
        # Keys are never NULL, so Arrow rejects untyped keys.
        key = StringType() if isinstance(kind.keyType, NullType) else kind.keyType
        return pa.map_(arrow_type(key), arrow_type(kind.valueType))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.dataType)) for f in kind.fields])
    return to_arrow(type_text(kind))


def _has(kind: DataType, wanted: type[DataType] | tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, ArrayType):
        return _has(kind.elementType, wanted)
    if isinstance(kind, MapType):
        return _has(kind.keyType, wanted) or _has(kind.valueType, wanted)
    if isinstance(kind, StructType):
        return any(_has(f.dataType, wanted) for f in kind.fields)
    return isinstance(kind, wanted)


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        key = StringType() if isinstance(kind.keyType, NullType) else _nullable(kind.keyType)
        return MapType(key, _nullable(kind.valueType), True)
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True) for f in kind.fields])
    return kind
