"""FILES: one file per epoch in a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.options import check_options, choice, flag, required
from penstock.connect.sinks import register_sink
from penstock.disk import write_durably
from penstock.errors import fail
from penstock.serve.zset import inserted, weighted

_FORMATS = ("parquet", "csv", "json")
_NAME = re.compile(r"epoch-(\d{12})\.(?:parquet|csv|json)")

_OPTIONS = ("path", "format", "mode", "changelog")


class FilesSink:
    """Exactly once: an epoch's file is named after the epoch and appears whole, so that a replay puts the same file in its place.

    `json` is one object per line. With `changelog = 'true'` rows carry `__weight`; otherwise a stream that retracts is refused.
    """

    def __init__(self, folder: Path, format: str, access: Access, *, changelog: bool) -> None:
        self._folder = folder
        self._format = format
        self._access = access
        self._changelog = changelog

    @property
    def accepts_changelog(self) -> bool:
        return self._changelog

    def open(self, schema: pa.Schema, resume_epoch: int) -> None:
        nested = [f.name for f in schema if pa.types.is_nested(f.type)]
        if self._format == "csv" and nested:
            raise fail("PSK-5002", f"CSV cannot hold the nested column {nested[0]!r}.", hint="Use PARQUET or JSON.")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise fail("PSK-5002", f"FILES cannot use {self._folder}: {why.strerror}.") from why

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        rows = weighted(table) if self._changelog else inserted(table)
        path = self._folder / f"epoch-{epoch:012d}.{self._format}"
        # The folder may have become a link since the sink was made.
        self._access.check("FILES", [self._folder])
        write_durably(path, lambda out: _ENCODERS[self._format](rows, out))

    def flush(self) -> None:
        """Each write is on disk when it returns."""

    def close(self) -> None:
        """No file is open between writes."""

    def last_epoch(self) -> int:
        if not self._folder.is_dir():
            return 0
        found = (_NAME.fullmatch(p.name) for p in self._folder.iterdir())
        return max((int(m[1]) for m in found if m), default=0)


def _parquet(table: pa.Table, out: BinaryIO) -> None:
    pa.parquet.write_table(table, out)


def _csv(table: pa.Table, out: BinaryIO) -> None:
    pa.csv.write_csv(table, out)


def _json(table: pa.Table, out: BinaryIO) -> None:
    maps = [f.name for f in table.schema if pa.types.is_map(f.type)]
    for row in table.to_pylist():
        for name in maps:
            row[name] = dict(row[name]) if row[name] is not None else None
        out.write(json.dumps(row, default=_text, ensure_ascii=False).encode() + b"\n")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


_ENCODERS = {"parquet": _parquet, "csv": _csv, "json": _json}


@register_sink("FILES", _OPTIONS)
def _make(connector: Connector, access: Access) -> FilesSink:
    options = connector.options
    check_options("FILES", options, _OPTIONS)
    check_options("FILES FORMAT", connector.format_options, ())
    if connector.format and "format" in options and connector.format.lower() != options["format"].lower():
        raise fail("PSK-1011", f"FILES: FORMAT {connector.format} and format = {options['format']!r} differ.")
    choice("FILES", "mode", options.get("mode", "append"), ("append",))
    format = choice("FILES", "format", connector.format or options.get("format", "parquet"), _FORMATS)
    changelog = flag("FILES", "changelog", options.get("changelog", "false"))
    folder = access.path("FILES", "path", required("FILES", options, "path"))
    return FilesSink(folder, format, access, changelog=changelog)
