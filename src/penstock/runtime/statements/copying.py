"""COPY, and the rows of read_files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.catalog.types import schema_of
from penstock.connect.rowfiles.columns import Wanted
from penstock.connect.rowfiles.reading import found_files, read_rows
from penstock.connect.rowfiles.writing import target_file, write_rows
from penstock.errors import PenstockError, Position, fail
from penstock.runtime.engine import Engine
from penstock.runtime.statements.session import Session
from penstock.runtime.storage.writes import Write
from penstock.sql import statements as st
from penstock.sql.files import FileRead
from penstock.sql.names import suggestion


def copied_in(session: Session, s: st.CopyFrom) -> Write:
    """The rows of COPY … FROM, as one write: all of them or none."""
    engine = session.engine
    info = session.writer.target(s.target)
    with _located(s.position):
        files = found_files(engine.access, s.path, s.options.format)
        feed = engine.storage.feed(info)
        wanted = Wanted(
            _wanted(info, s), complete=s.columns is not None, exact=s.columns is None, defaults=feed.defaults
        )
        with engine.copies.running(f"COPY {info.name} FROM '{s.path}'", _size(files)) as progress:
            rows = read_rows(files, s.options, wanted, progress)
    return info, "insert", feed.part(rows)


def _wanted(info: ObjectInfo, s: st.CopyFrom) -> tuple[pa.Field, ...]:
    schema = schema_of(info.columns)
    if s.columns is None:
        return tuple(schema)
    names = [c.name for c in info.columns]
    folded = {n.lower(): n for n in names}
    for n in s.columns:
        if n.lower() not in folded:
            raise fail("PSK-1004", f"{info.name} has no column {n}.", hint=suggestion(n, names))
    return tuple(schema.field(folded[n.lower()]) for n in s.columns)


def copy_out(session: Session, s: st.CopyTo, rows: pa.Table) -> pa.Table:
    with _located(s.position):
        file, format = target_file(session.engine.access, s.path, s.options)
        write_rows(file, format, s.options, rows)
    return pa.table({"rows": pa.array([rows.num_rows], pa.int64())})


def check_target(session: Session, s: st.CopyTo) -> None:
    """Refuses a target before its rows are computed."""
    with _located(s.position):
        target_file(session.engine.access, s.path, s.options)


def file_rows(engine: Engine, read: FileRead) -> pa.Table:
    """The rows of a call of read_files."""
    with _located(read.position):
        files = found_files(engine.access, read.path, read.options.format)
        wanted = Wanted(tuple(schema_of(read.columns))) if read.columns else None
        with engine.copies.running(f"read_files('{read.path}')", _size(files)) as progress:
            return read_rows(files, read.options, wanted, progress)


def explain_copy(engine: Engine, s: st.CopyFrom) -> list[str]:
    """What COPY … FROM would read, and where to."""
    info = engine.writer.target(s.target)
    with _located(s.position):
        files = found_files(engine.access, s.path, s.options.format)
        fields = _wanted(info, s)
    names = ", ".join(f.name for f in fields)
    return [
        f"COPY into {info.kind.value} {info.name} ({names}), one commit",
        *(f"  {format} file {file}, {file.stat().st_size} bytes" for file, format in files),
    ]


def _size(files: list[tuple[Path, str]]) -> int:
    return sum(file.stat().st_size for file, _ in files)


@contextmanager
def _located(position: Position | None) -> Iterator[None]:
    """An error of a file points at its path in the statement."""
    try:
        yield
    except PenstockError as error:
        error.position = error.position or position
        raise
