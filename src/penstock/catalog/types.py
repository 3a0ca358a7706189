"""Spark's types and their Arrow counterparts, without Spark.

Each Spark type has one Arrow type everywhere outside the JVM: in the log, in the view store and for subscribers.
`timestamp` is `timestamp[us, tz=UTC]`, `timestamp_ntz` is `timestamp[us]`. The types that Arrow lacks are in `declared`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from penstock.catalog.coerce import coerce
from penstock.catalog.declared import DECLARED, is_declared
from penstock.catalog.objects import Column, ObjectInfo
from penstock.errors import PenstockError, fail

__all__ = ["WEIGHT", "coerce", "schema_of", "stored_schema", "to_arrow"]

WEIGHT = "__weight"
"""The last column of a changelog: the number of copies of the row that are inserted or, if negative, retracted."""

_SIMPLE: dict[str, pa.DataType] = {
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "void": pa.null(),
    "variant": pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
}
_INTERVALS = {
    (first, last): kind
    for fields, kind in (
        (("year", "month"), pa.int32()),
        (("day", "hour", "minute", "second"), pa.duration("us")),
    )
    for i, first in enumerate(fields)
    for last in fields[i:]
}
"""By first and last field. Arrow has no month interval that Python can read, so a year-month interval is a number of months."""

_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*")
_ARGS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*")
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^:<>,\s`]+))\s*:?")
_RANGE = re.compile(r"\s*([A-Za-z]+)(?:\s+[tT][oO]\s+([A-Za-z]+))?\s*")
_MAX_PRECISION = 38
MAX_TIME = 6
"""The maximum number of fractional digits of a TIME."""


class _Parser:
    """Recursive descent over one type string."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> pa.DataType:
        found = self.type()
        if self.at != len(self.text):
            raise self.unknown()
        return found

    def type(self) -> pa.DataType:
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise self.unknown()
        self.at = word.end()
        name = word[1].lower()
        if name == "array":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return pa.list_(pa.field("element", element))
        if name == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            if pa.types.is_null(key):
                raise fail("PSK-2010", "A map without a type has no keys.", hint="Write CAST(map() AS MAP<…, …>).")
            return pa.map_(key, value)
        if name == "struct":
            return self.struct()
        if name == "interval":
            return self.interval()
        args = _ARGS.match(self.text, self.at)
        if args is not None:
            self.at = args.end()
        return self.scalar(name, args)

    def scalar(self, name: str, args: re.Match[str] | None) -> pa.DataType:
        if name in ("decimal", "dec", "numeric"):
            precision = int(args[1]) if args else 10
            scale = int(args[2]) if args and args[2] else 0
            if not 1 <= precision <= _MAX_PRECISION or scale > precision:
                raise self.unknown()
            return pa.decimal128(precision, scale)
        if name == "time":
            if args is None or args[2] or int(args[1]) > MAX_TIME:
                raise self.unknown()
            return pa.time64("ns")
        if name in ("varchar", "char", "character"):
            if args is None or args[2]:
                raise self.unknown()
            return pa.string()
        if args is not None or name not in _SIMPLE:
            raise self.unknown()
        return _SIMPLE[name]

    def interval(self) -> pa.DataType:
        words = _RANGE.match(self.text, self.at)
        if words is None:
            raise fail(
                "PSK-2010",
                "An interval of months and days cannot be stored.",
                hint="Use INTERVAL YEAR TO MONTH or INTERVAL DAY TO SECOND, as in INTERVAL '1 02:00' DAY TO MINUTE.",
            )
        if (found := _INTERVALS.get((words[1].lower(), (words[2] or words[1]).lower()))) is None:
            raise self.unknown()
        self.at = words.end()
        return found

    def struct(self) -> pa.DataType:
        self.expect("<")
        fields: list[pa.Field] = []
        while not self.take(">"):
            if fields:
                self.expect(",")
            label = _FIELD.match(self.text, self.at)
            if label is None:
                raise self.unknown()
            self.at = label.end()
            name = label[1].replace("``", "`") if label[1] else label[2]
            fields.append(pa.field(name, self.type()))
        return pa.struct(fields)

    def take(self, token: str) -> bool:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        if self.text[self.at : self.at + 1] != token:
            return False
        self.at += 1
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.unknown()

    def unknown(self) -> PenstockError:
        return fail("PSK-1013", f"Unknown type {self.text!r}.")


@lru_cache(maxsize=4096)
def to_arrow(spark_type: str) -> pa.DataType:
    """The Arrow type of a Spark simple string such as `decimal(10,2)` or `struct<a:int,b:array<string>>`."""
    return _Parser(spark_type).whole()


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of an object's columns, with their names, order and nullability."""
    return pa.schema([_field(c) for c in columns])


def _field(column: Column) -> pa.Field:
    declared = {DECLARED: column.type.encode()} if is_declared(column.type) else None
    return pa.field(column.name, to_arrow(column.type), column.nullable, declared)


def stored_schema(info: ObjectInfo) -> pa.Schema:
    """The Arrow schema of an object's rows in the log: its columns, plus the weight for a changelog."""
    schema = schema_of(info.columns)
    return schema.append(pa.field(WEIGHT, pa.int64())) if info.changelog else schema
