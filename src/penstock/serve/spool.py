"""Tables that need not fit in memory: in a mapped file that disappears with the table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from penstock.disk import make_folder, unwritable


def spooled(pieces: Iterable[pa.Table], schema: pa.Schema, folder: Path | None, most_bytes: int) -> pa.Table:
    """All pieces as one table: in memory up to `most_bytes`, otherwise in a file in `folder`, if there is one. Raises PSK-7004."""
    held: list[pa.Table] = []
    size = 0
    rest = iter(pieces)
    for piece in rest:
        held.append(piece)
        size += piece.nbytes
        if folder is not None and size > most_bytes:
            return _mapped(held, rest, schema, folder)
    return pa.concat_tables(held) if held else schema.empty_table()


def _mapped(held: list[pa.Table], rest: Iterable[pa.Table], schema: pa.Schema, folder: Path) -> pa.Table:
    make_folder(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow") as file:
            with pa.ipc.new_file(file, schema) as writer:
                while held:
                    writer.write_table(held.pop(0).cast(schema))
                for piece in rest:
                    writer.write_table(piece.cast(schema))
            file.flush()
            # The mapping lives as long as the table, even though the file is unlinked.
            with pa.memory_map(file.name) as mapped:
                return pa.ipc.open_file(mapped).read_all()
    except OSError as error:
        if error.errno is None:
            raise
        raise unwritable(folder, error) from error


__all__ = ["spooled"]
