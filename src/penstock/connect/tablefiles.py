"""FILES: a lookup table in Parquet or CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from penstock.catalog.coerce import coerce
from penstock.catalog.objects import Column, Connector
from penstock.catalog.types import schema_of
from penstock.connect.access import Access
from penstock.connect.lookups import register_lookup
from penstock.connect.options import check_options, choice, required
from penstock.connect.types import INTERVALS, VARIANTS, refuse_read
from penstock.errors import PenstockError, fail
from penstock.sql.names import suggestion

_FORMATS = ("parquet", "csv")
_OPTIONS = ("path", "format", "csv.delimiter")


class TableFiles:
    """Reads one file, all files in a folder with the extension of the format, or the files that match a pattern (`*`, `?`, `**`).

    Columns are matched by name, ignoring case; extra columns are dropped. CSV needs a header line; an empty field is NULL, except in
    a STRING column. Replacing a file while it is read makes that read fail.
    """

    def __init__(
        self, path: str, format: str | None, delimiter: str, columns: Sequence[Column], access: Access
    ) -> None:
        self._path = path
        self._access = access
        self._format = format
        self._delimiter = delimiter
        self._schema = schema_of(columns)

    def check(self) -> None:
        self._files()

    def scan(self) -> pa.Table:
        parts = [self._read(f) for f in self._files()]
        return pa.concat_tables(parts) if parts else self._schema.empty_table()

    def fetch(self, keys: pa.Table) -> pa.Table:
        raise fail("PSK-8001", "FILES cannot fetch single rows.")

    def cancel(self) -> None:
        """Nothing to interrupt: reads always finish."""

    def close(self) -> None:
        """No file is open between calls."""

    def _files(self) -> list[Path]:
        path = Path(self._path)
        if not path.exists():
            found = self._access.matching("FILES", "path", self._path)
        elif self._access.path("FILES", "path", self._path).is_dir():
            ends = (f".{self._format}",) if self._format else tuple(f".{f}" for f in _FORMATS)
            inside = sorted(f for f in path.iterdir() if f.is_file() and f.name.lower().endswith(ends))
            self._access.check("FILES", inside)
            return inside
        else:
            return [path]
        if not found:
            raise fail("PSK-5002", f"FILES: there is nothing at {self._path}.", hint="Check the path.")
        return found

    def _format_of(self, file: Path) -> str:
        format = self._format or file.suffix.lower().removeprefix(".")
        if format not in _FORMATS:
            raise fail(
                "PSK-1011",
                f"FILES: cannot infer the format of {file.name} from its name.",
                hint="Add format = 'parquet' or format = 'csv'.",
            )
        return format

    def _read(self, file: Path) -> pa.Table:
        format = self._format_of(file)
        try:
            return self._csv(file) if format == "csv" else self._parquet(file)
        except PenstockError as why:
            raise fail(why.code, f"FILES: {file.name}: {why.detail}", hint=why.hint) from why
        except (OSError, pa.ArrowException) as why:
            raise fail("PSK-5002", f"FILES: {file.name} cannot be read as {format}: {why}") from why

    def _parquet(self, file: Path) -> pa.Table:
        names = self._names(pa.parquet.read_schema(file).names)
        table = pa.parquet.ParquetFile(file).read(columns=names)
        return coerce(table.select(names).rename_columns(self._schema.names), self._schema)

    def _csv(self, file: Path) -> pa.Table:
        parsing = pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        with pa.csv.open_csv(file, parse_options=parsing) as reader:
            names = self._names(reader.schema.names)
        # Timestamps may have an offset or not. Arrow's CSV reader accepts only one of these, `coerce` accepts both.
        times = [pa.types.is_timestamp(f.type) for f in self._schema]
        types = {n: pa.string() if t else f.type for n, f, t in zip(names, self._schema, times, strict=True)}
        # Override Arrow's default null values: 'NA' and 'nan' can be names.
        converting = pa.csv.ConvertOptions(column_types=types, include_columns=names, null_values=[""])
        table = pa.csv.read_csv(file, parse_options=parsing, convert_options=converting)
        for i, text in enumerate(times):
            if text:
                empty = pc.equal(table.column(i), "")
                table = table.set_column(i, names[i], pc.if_else(empty, pa.scalar(None, pa.string()), table.column(i)))
        return coerce(table.rename_columns(self._schema.names), self._schema)

    def _names(self, have: list[str]) -> list[str]:
        """The names of the declared columns as the file spells them."""
        folded = {n.lower(): n for n in have}
        exact = set(have)
        out = []
        for name in self._schema.names:
            found = name if name in exact else folded.get(name.lower())
            if found is None:
                raise fail("PSK-1004", f"There is no column {name}.", hint=suggestion(name, have))
            out.append(found)
        return out


@register_lookup("FILES", _OPTIONS, by_key=False)
def _make(connector: Connector, columns: Sequence[Column], key: Sequence[str], access: Access) -> TableFiles:
    options = connector.options
    check_options("FILES", options, _OPTIONS)
    check_options("FILES FORMAT", connector.format_options, ())
    if connector.format and "format" in options and connector.format.lower() != options["format"].lower():
        raise fail("PSK-1011", f"FILES: FORMAT {connector.format} and format = {options['format']!r} differ.")
    given = connector.format or options.get("format")
    format = choice("FILES", "format", given, _FORMATS) if given else None
    delimiter = options.get("csv.delimiter", ",")
    if len(delimiter) != 1:
        raise fail("PSK-1011", f"FILES: csv.delimiter = {delimiter!r} is not one character.")
    refuse_read("FILES", columns, INTERVALS, VARIANTS)
    nested = [c.name for c in columns if c.type.startswith(("array", "map", "struct"))]
    if format == "csv" and nested:
        raise fail("PSK-1011", f"FILES: CSV does not support the nested column {nested[0]!r}.", hint="Use PARQUET.")
    return TableFiles(required("FILES", options, "path"), format, delimiter, columns, access)
