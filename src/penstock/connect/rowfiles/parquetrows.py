"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from penstock.catalog.coerce import coerce
from penstock.catalog.objects import Column
from penstock.catalog.types import MAX_TIME, schema_of
from penstock.connect.rowfiles.badrow import unreadable
from penstock.connect.rowfiles.columns import Wanted
from penstock.connect.rowfiles.csvrows import Step
from penstock.errors import PenstockError, fail


def _opened(file: Path) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(file)
    except (OSError, pa.ArrowException) as why:
        raise unreadable(file, f"it is not a Parquet file: {why}") from None


def inferred(files: Sequence[Path]) -> list[pa.Field]:
    """The columns of the first file."""
    with _opened(files[0]) as first:
        return [_field(files[0], f) for f in first.schema_arrow]


def _field(file: Path, f: pa.Field) -> pa.Field:
    if pa.types.is_time(f.type):
        return schema_of([Column(f.name, f"time({MAX_TIME})")]).field(0)
    return pa.field(f.name, _kept(file, f.name, f.type))


def _kept(file: Path, name: str, kind: pa.DataType) -> pa.DataType:
    """The type in which values are kept."""
    t = pa.types
    if t.is_dictionary(kind):
        return _kept(file, name, kind.value_type)
    if t.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[kind.bit_width]
    if t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if t.is_date(kind):
        return pa.date32()
    if t.is_float16(kind):
        return pa.float32()
    if t.is_map(kind):
        return pa.map_(_kept(file, name, kind.key_type), _kept(file, name, kind.item_type))
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _kept(file, name, kind.value_type)))
    if t.is_struct(kind):
        return pa.struct([pa.field(f.name, _kept(file, name, f.type)) for f in kind])
    if t.is_null(kind):
        return pa.string()
    plain = t.is_boolean(kind) or t.is_integer(kind) or t.is_floating(kind) or t.is_decimal128(kind)
    if plain or t.is_string(kind) or t.is_binary(kind):
        return kind
    raise unreadable(file, f"column {name} has the type {kind}, which is not supported")


def read(file: Path, wanted: Wanted, step: Step) -> Iterator[pa.Table]:
    size, done = file.stat().st_size, 0
    with _opened(file) as opened:
        pairs = wanted.pairs(file, opened.schema_arrow.names)
        names = [opened.schema_arrow.names[at] for at, _ in pairs]
        schema = pa.schema([f for _, f in pairs])
        total = max(1, opened.metadata.num_rows)
        try:
            for batch in opened.iter_batches(columns=names):
                table = pa.Table.from_batches([batch]).select(names).rename_columns(schema.names)
                yield coerce(table, schema).cast(pa.schema([f.with_nullable(True) for f in schema]))
                done += batch.num_rows
                step(size * batch.num_rows // total, batch.num_rows)
        except PenstockError as why:
            after = f" after row {done}" if done else ""
            raise fail(why.code, f"{file}{after}: {why.detail}", hint=why.hint) from None
        except (OSError, pa.ArrowException) as why:
            raise unreadable(file, f"it is damaged: {why}") from None
