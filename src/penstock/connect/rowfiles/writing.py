"""Writes rows to one file: the whole file, or none."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from penstock.catalog.declared import declared
from penstock.connect.access import Access
from penstock.connect.formats import find_format
from penstock.connect.rowfiles.reading import format_of
from penstock.connect.types import INTERVALS, refuse_written
from penstock.disk import write_durably
from penstock.errors import fail
from penstock.sql.files import FileOptions


def target_file(access: Access, path: str, options: FileOptions) -> tuple[Path, str]:
    """The file to write and its format. Raises PSK-1022 if there is one already."""
    file = access.path("A file path", "path", path)
    format = options.format or format_of(file)
    if file.is_dir():
        raise fail("PSK-1021", f"{path} is a folder.", hint=f"Name the file: '{path.rstrip('/')}/rows.{format}'.")
    if not file.parent.is_dir():
        raise fail("PSK-1021", f"There is no folder {file.parent}.", hint="Create it first.")
    if file.exists() and not options.overwrite:
        raise fail("PSK-1022", f"{path} exists.")
    return file, format


def write_rows(file: Path, format: str, options: FileOptions, rows: pa.Table) -> None:
    known = find_format(format)
    for f in rows.schema:
        if not known.nested and pa.types.is_nested(f.type) and declared(f) != "variant":
            raise fail(
                "PSK-1021",
                f"{format.upper()} does not support the nested column {f.name}.",
                hint="Use Parquet or JSON.",
            )
        if not known.every_type and pa.types.is_binary(f.type):
            raise fail("PSK-1021", f"Column {f.name} is binary.", hint=f"Use Parquet, or select hex({f.name}).")
    if not known.every_type:
        refuse_written(format.upper(), rows.schema, INTERVALS)
    names = [n.lower() for n in rows.column_names]
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise fail("PSK-1014", f"Two columns are named {twice}.", hint="Give one of them another name with AS.")

    def encode(out: BinaryIO) -> None:
        assert known.encode is not None
        known.encode(rows, out, options)

    write_durably(file, encode)
