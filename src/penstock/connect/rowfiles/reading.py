"""Finds the files of a path and reads their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.connect.access import Access
from penstock.connect.formats import by_ending, find_format
from penstock.connect.rowfiles.columns import Wanted
from penstock.errors import fail
from penstock.sql.files import FORMATS, FileOptions


class Progress(Protocol):
    def __call__(self, read_bytes: int, rows: int) -> None:
        """Is told how many bytes and rows have been read since the last call."""


def found_files(access: Access, path: str, format: str | None) -> list[tuple[Path, str]]:
    """The files of a path, a folder or a pattern, each with its format. Raises PSK-1021 if there is none."""
    place = Path(path)
    if access_is(access, path) and place.is_dir():
        found = sorted(
            f
            for f in place.iterdir()
            if f.is_file()
            and not f.name.startswith((".", "_"))
            and by_ending(f.suffix.lower()) in ((format,) if format else FORMATS)
        )
        access.check("A file path", found)
    elif place.is_file():
        found = [place]
    else:
        found = access.matching("A file path", "path", path)
    if not found:
        raise fail("PSK-1021", f"There is no file at {path}.", hint=f"Relative paths begin at {Path.cwd()}.")
    return [(f, format or format_of(f)) for f in found]


def access_is(access: Access, path: str) -> bool:
    """Raises PSK-0012 if a path without a pattern is outside the allowed folders; otherwise whether it exists."""
    import glob

    if not glob.has_magic(path) or Path(path).exists():
        access.path("A file path", "path", path)
    return Path(path).exists()


def format_of(file: Path) -> str:
    format = by_ending(file.suffix.lower())
    if format is None:
        raise fail(
            "PSK-1021",
            f"The name of {file} does not tell its format.",
            hint=f"Name it: format = '{FORMATS[0]}', '{FORMATS[1]}' or '{FORMATS[2]}'.",
        )
    return format


def read_rows(
    files: Sequence[tuple[Path, str]], options: FileOptions, wanted: Wanted | None, progress: Progress
) -> pa.Table:
    """The rows of all files; all of them or an error. Without `wanted` the columns are inferred."""
    if wanted is None:
        wanted = _inferred(files, options)
    parts: list[pa.Table] = []
    for file, format in files:
        read = find_format(format).read
        assert read is not None
        parts += read(file, wanted, options, progress)
    schema = pa.schema([f.with_nullable(True) for f in wanted.fields])
    if not parts:
        return schema.empty_table()
    if any(p.column_names != parts[0].column_names for p in parts):
        raise fail("PSK-1021", "The files do not have the same columns.", hint="Read them one after another.")
    return pa.concat_tables(parts)


def _inferred(files: Sequence[tuple[Path, str]], options: FileOptions) -> Wanted:
    formats = {format for _, format in files}
    if len(formats) > 1:
        raise fail("PSK-1021", f"The files are {' and '.join(sorted(formats))}.", hint="Choose one with format => '…'.")
    paths = [file for file, _ in files]
    (format,) = formats

    def quiet(read_bytes: int, rows: int) -> None:
        """What is only looked at counts when it is read."""

    inferred = find_format(format).inferred
    assert inferred is not None
    return inferred(paths, options, quiet)
