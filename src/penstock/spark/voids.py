"""Results with values of no type: `array()`, `NULL`, `map('a', NULL)`. No object can have them, but a SELECT may."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructField, StructType

from penstock.catalog.types import to_arrow


def holdable(df: DataFrame) -> DataFrame:
    """The frame with types that Arrow can hold: Spark says of `array()` that its elements have no type and are never NULL, which Arrow refuses."""
    fields = df.schema.fields
    if not any(_has_void(f.dataType) for f in fields if not (f.nullable and isinstance(f.dataType, NullType))):
        return df
    numbered = df.toDF(*(f"c{i}" for i in range(len(fields))))
    return numbered.select([_held(F.col(f"c{i}"), f.dataType).alias(f.name) for i, f in enumerate(fields)])


def _held(column: Column, kind: DataType) -> Column:
    return F.lit(None) if isinstance(kind, NullType) else column.cast(_nullable(kind))


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a column of a result; PSK-1013 if there is none."""
    if not _has_void(kind):
        return to_arrow(kind.simpleString())
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.dataType)) for f in kind.fields])
    return pa.null()


def _has_void(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_void(kind.elementType)
    if isinstance(kind, MapType):
        return _has_void(kind.keyType) or _has_void(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_void(f.dataType) for f in kind.fields)
    return isinstance(kind, NullType)


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        key = StringType() if isinstance(kind.keyType, NullType) else _nullable(kind.keyType)
        return MapType(key, _nullable(kind.valueType), True)
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True) for f in kind.fields])
    return kind
