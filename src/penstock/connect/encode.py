"""Rows as the bytes of a file: Parquet, CSV, JSON lines."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.catalog.declared import contains, declared
from penstock.catalog.values import values
from penstock.catalog.variant import json_text


def parquet(table: pa.Table, out: BinaryIO) -> None:
    pa.parquet.write_table(table, out)


def csv(table: pa.Table, out: BinaryIO, *, header: bool = True, delimiter: str = ",") -> None:
    for i, f in enumerate(table.schema):
        if declared(f) == "variant":
            text = [None if v is None else json_text(v) for v in values(table.column(i), f)]
            table = table.set_column(i, f.name, pa.array(text, pa.string()))
        if pa.types.is_binary(f.type):
            text = [None if v is None else v.hex() for v in table.column(i).to_pylist()]
            table = table.set_column(i, f.name, pa.array(text, pa.string()))
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=header, delimiter=delimiter))


def json_lines(table: pa.Table, out: BinaryIO) -> None:
    maps = [f.name for f in table.schema if pa.types.is_map(f.type)]
    variants = {f.name: f for f in table.schema if contains(declared(f) or "", "variant")}
    for batch in table.to_batches(max_chunksize=10_000):
        texts = {n: [json_text(v) for v in values(batch.column(n), f)] for n, f in variants.items()}
        for i, row in enumerate(batch.drop_columns(list(variants)).to_pylist()):
            for name in maps:
                if name in row:
                    row[name] = dict(row[name]) if row[name] is not None else None
            line = json.dumps(row, default=_text, ensure_ascii=False)
            more = ", ".join(f"{json.dumps(n, ensure_ascii=False)}: {found[i]}" for n, found in texts.items())
            line = f"{line[:-1]}{', ' if row and more else ''}{more}}}" if more else line
            out.write(line.encode() + b"\n")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
