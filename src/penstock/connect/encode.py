"""Rows as the bytes of a file: Parquet, CSV, JSON lines."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet


def parquet(table: pa.Table, out: BinaryIO) -> None:
    pa.parquet.write_table(table, out)


def csv(table: pa.Table, out: BinaryIO, *, header: bool = True, delimiter: str = ",") -> None:
    for i, f in enumerate(table.schema):
        if pa.types.is_binary(f.type):
            text = [None if v is None else v.hex() for v in table.column(i).to_pylist()]
            table = table.set_column(i, f.name, pa.array(text, pa.string()))
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=header, delimiter=delimiter))


def json_lines(table: pa.Table, out: BinaryIO) -> None:
    maps = [f.name for f in table.schema if pa.types.is_map(f.type)]
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            for name in maps:
                row[name] = dict(row[name]) if row[name] is not None else None
            out.write(json.dumps(row, default=_text, ensure_ascii=False).encode() + b"\n")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
