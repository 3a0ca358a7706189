"""The registry of formats: how messages become rows, and how rows and files become each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from penstock.catalog.objects import Column
from penstock.connect import encode
from penstock.connect.decode import COLUMN_PREFIX, OPTIONS, JsonDecoder
from penstock.connect.rowfiles import csvrows, jsonrows, parquetrows
from penstock.connect.rowfiles.columns import Wanted
from penstock.connect.rowfiles.csvrows import Step
from penstock.sql.files import FileOptions


class Decoder(Protocol):
    """Turns messages into rows of the declared columns. Raises PSK-5007 for one that does not fit."""

    def decode(self, lines: Sequence[str | bytes], /) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class Format:
    """What a connector can do with a format; None if it cannot.

    `decoder` makes a decoder for columns and options; its options are `options` and those that begin with `prefix`. `encode` writes a table to a file.
    `read` yields the rows of a file, `inferred` the columns of several: both are for COPY and read_files, whose formats are `penstock.sql.files.FORMATS`.
    `endings` are the extensions of files. `nested`: has arrays, maps and structs. `every_type`: keeps BINARY, INTERVAL and VARIANT as they are; others write a VARIANT as JSON.
    """

    name: str
    endings: tuple[str, ...]
    decoder: Callable[[Sequence[Column], Mapping[str, str]], Decoder] | None = None
    options: tuple[str, ...] = ()
    prefix: str | None = None
    encode: Callable[[pa.Table, BinaryIO, FileOptions], None] | None = None
    read: Callable[[Path, Wanted, FileOptions, Step], Iterator[pa.Table]] | None = None
    inferred: Callable[[Sequence[Path], FileOptions, Step], Wanted] | None = None
    nested: bool = True
    every_type: bool = False


_FORMATS: dict[str, Format] = {}


def register_format(format: Format) -> None:
    """A later registration replaces an earlier one of the same name."""
    _FORMATS[format.name] = format


def find_format(name: str) -> Format:
    return _FORMATS[name]


def decoded() -> list[str]:
    """The formats of messages."""
    return [f.name for f in _FORMATS.values() if f.decoder is not None]


def encoded() -> list[str]:
    """The formats of files that are written."""
    return [f.name for f in _FORMATS.values() if f.encode is not None]


def by_ending(ending: str) -> str | None:
    """The format of files with an extension, in lower case and with its dot, that COPY and read_files can read."""
    return next((f.name for f in _FORMATS.values() if f.read is not None and ending in f.endings), None)


def _tabbed(file: Path, options: FileOptions) -> FileOptions:
    """A .tsv file is separated by tabs."""
    tabs = file.suffix.lower() == ".tsv" and options.delimiter == ","
    return FileOptions(options.format, options.header, "\t", options.null) if tabs else options


register_format(
    Format(
        "parquet",
        (".parquet",),
        encode=lambda table, out, options: encode.parquet(table, out),
        read=lambda file, wanted, options, step: parquetrows.read(file, wanted, step),
        inferred=lambda files, options, step: Wanted(tuple(parquetrows.inferred(files))),
        every_type=True,
    )
)
register_format(
    Format(
        "csv",
        (".csv", ".tsv"),
        encode=lambda table, out, options: encode.csv(table, out, header=options.header, delimiter=options.delimiter),
        read=lambda file, wanted, options, step: csvrows.read(file, wanted, _tabbed(file, options), step),
        inferred=lambda files, options, step: Wanted(
            tuple(csvrows.inferred(files, _tabbed(files[0], options), step)), by_place=False
        ),
        nested=False,
    )
)
register_format(
    Format(
        "json",
        (".json", ".jsonl", ".ndjson"),
        decoder=JsonDecoder,
        options=OPTIONS,
        prefix=COLUMN_PREFIX,
        encode=lambda table, out, options: encode.json_lines(table, out),
        read=lambda file, wanted, options, step: jsonrows.read(file, wanted, step),
        inferred=lambda files, options, step: Wanted(tuple(jsonrows.inferred(files, step))),
    )
)
