"""CSV files: parsed by Arrow as text, which is then converted column by column."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.catalog.convert import Misfit, array, shown
from penstock.connect.rowfiles.badrow import BadRow, bad_row, unreadable
from penstock.connect.rowfiles.columns import Wanted, check_names, storable
from penstock.errors import fail
from penstock.sql.files import FileOptions

if TYPE_CHECKING:
    from _csv import Reader as Records

_BLOCK = 4 << 20
_FIELD = (1 << 31) - 1
_UNFIT = (Misfit, pa.ArrowException, TypeError, ValueError, ArithmeticError)
_INFERRED: tuple[tuple[str, pa.DataType], ...] = (
    ("(?i)^(true|false)$", pa.bool_()),
    (r"^[+-]?[0-9]{1,19}$", pa.int64()),
    (r"^[+-]?[0-9]{1,38}$", pa.decimal128(38, 0)),
    (r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$", pa.float64()),
    (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", pa.date32()),
    (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}", pa.timestamp("us", tz="UTC")),
)
"""What a column can be, if all its values match: the first that fits; otherwise a string."""

Step = Callable[[int, int], None]
"""Is told how many bytes and rows have been read since the last call."""


@contextmanager
def _records(file: Path, options: FileOptions, *, strict: bool = False, errors: str = "replace") -> Iterator[Records]:
    """The records of a file as Python reads them, which knows on which lines they are. Arrow has no limit for a field either."""
    limit = csv.field_size_limit(_FIELD)
    try:
        with file.open(encoding="utf-8-sig", errors=errors, newline="") as text:
            yield csv.reader(text, delimiter=options.delimiter, strict=strict)
    finally:
        csv.field_size_limit(limit)


def names_of(file: Path, options: FileOptions) -> list[str]:
    """The names in the header, or `_c0`, `_c1` … . None at all for an empty file."""
    try:
        with _records(file, options, errors="strict") as rows:
            first = next((row for row in rows if row), [])
    except UnicodeDecodeError:
        raise _not_utf8(file) from None
    except csv.Error as why:
        raise unreadable(file, f"it is not CSV: {why}") from None
    if not options.header:
        return [f"_c{i}" for i in range(len(first))]
    check_names(file, first)
    return first


def inferred(files: Sequence[Path], options: FileOptions, step: Step) -> list[pa.Field]:
    """The columns of all files, typed by all their values."""
    texts: list[pa.Table] = []
    for file in files:
        names = names_of(file, options)
        parts = [b for _, b in _batches(file, names, options, step)]
        found = pa.Table.from_batches(parts, pa.schema([(n, pa.string()) for n in names]))
        if texts and set(names) != set(texts[0].column_names):
            other = sorted(set(names) ^ set(texts[0].column_names))[0]
            raise unreadable(
                file, f"its columns differ from those of {files[0].name} ({other})", "Give the columns with schema."
            )
        texts.append(found.select(texts[0].column_names) if texts else found)
    if not texts or not texts[0].column_names:
        raise fail("PSK-1021", f"{files[0] if files else 'the file'} is empty, so its columns are not known.")
    whole = pa.concat_tables(texts)
    return [pa.field(n, _inferred(whole.column(n))) for n in whole.column_names]


def _inferred(values: pa.ChunkedArray) -> pa.DataType:
    trimmed = pc.utf8_trim_whitespace(values)
    if values.null_count == len(values):
        return pa.string()
    for pattern, kind in _INFERRED:
        if pc.all(pc.match_substring_regex(trimmed, pattern)).as_py():
            try:
                _converted(values, pa.field("", kind))
            except BadRow:
                continue
            return kind
    return pa.string()


def read(file: Path, wanted: Wanted, options: FileOptions, step: Step) -> Iterator[pa.Table]:
    names = names_of(file, options)
    if not names:
        return
    if options.header or not wanted.by_place:
        pairs = wanted.pairs(file, names)
    else:
        if len(names) != len(wanted.fields):
            raise unreadable(file, f"its first row has {len(names)} values for {len(wanted.fields)} columns")
        pairs = list(enumerate(wanted.fields))
    for before, batch in _batches(file, names, options, step):
        columns = []
        for at, f in pairs:
            try:
                made = _converted(batch.column(at), f)
                storable(made, f)
            except BadRow as why:
                line = _line(file, options, before + why.row + options.header)
                raise bad_row(file, f"line {line}", why) from None
            columns.append(made)
        yield pa.table(columns, schema=pa.schema([f.with_nullable(True) for _, f in pairs]))


def _batches(
    file: Path, names: Sequence[str], options: FileOptions, step: Step
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows as text, in blocks, each with the number of its first row."""
    if not names:
        return
    bad: list[pa.csv.InvalidRow] = []

    def invalid(row: pa.csv.InvalidRow) -> str:
        bad.append(row)
        return "error"

    keys = list(names) if options.header else [f"f{i}" for i in range(len(names))]
    reading = pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=not options.header)
    parsing = pa.csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True, invalid_row_handler=invalid)
    # An unquoted empty field is NULL, a quoted one is empty text.
    converting = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(keys, pa.string()),
        null_values=[options.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    rows = 0
    try:
        _check_quotes(file, options)
        with (
            file.open("rb") as raw,
            pa.csv.open_csv(raw, read_options=reading, parse_options=parsing, convert_options=converting) as reader,
        ):
            at = 0
            for batch in reader:
                renamed = pa.RecordBatch.from_arrays(batch.columns, names=list(names))
                yield rows, renamed
                rows += batch.num_rows
                now = raw.tell()
                step(now - at, batch.num_rows)
                at = now
    except pa.ArrowException as why:
        if bad:
            count = f"{bad[0].actual_columns} values for {bad[0].expected_columns} columns"
            line = _uneven(file, options, len(names))
            raise bad_row(file, f"line {line}", BadRow(0, None, count)) from None
        if "UTF8" in str(why):
            raise _not_utf8(file) from None
        raise unreadable(file, f"it is not CSV: {why}") from None
    except OSError as why:
        raise unreadable(file, why.strerror or str(why)) from None


def _converted(values: pa.Array | pa.ChunkedArray, f: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Text as values of a type: only what is one, surrounding blanks aside. Raises BadRow."""
    kind = f.type
    if pa.types.is_string(kind):
        return values
    try:
        return _cast(pc.utf8_trim_whitespace(values), kind)
    except _UNFIT:
        for i, one in enumerate(values):
            try:
                _cast(pc.utf8_trim_whitespace(pa.array([one.as_py()], pa.string())), kind)
            except _UNFIT:
                raise BadRow(i, f.name, f"{shown(one.as_py())} is not of type {_named(kind)}") from None
        raise


def _cast(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_time(kind):
        # Arrow writes nine digits of a second, and reads no times.
        return array(pc.replace_substring_regex(values, r"(\.\d{6})000$", r"\1").to_pylist(), kind)
    if not pa.types.is_timestamp(kind):
        return values.cast(kind)
    try:
        return values.cast(pa.timestamp("us")).cast(kind)
    except pa.ArrowException:
        # With an offset in some of them.
        return array(values.to_pylist(), kind)


def _named(kind: pa.DataType) -> str:
    return {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "bool": "boolean"}.get(
        str(kind), str(kind).partition("[")[0].removesuffix("32").removesuffix("128")
    )


def _line(file: Path, options: FileOptions, row: int) -> int:
    """The line on which a row begins; the header is row 0 if there is one."""
    with _records(file, options) as rows:
        line = 1
        for found in rows:
            if found:
                if row == 0:
                    return line
                row -= 1
            line = rows.line_num + 1
        return line


def _uneven(file: Path, options: FileOptions, width: int) -> int:
    """The line of the first row that does not have `width` values."""
    with _records(file, options) as rows:
        line = 1
        for found in rows:
            if found and len(found) != width:
                return line
            line = rows.line_num + 1
        return line


def _check_quotes(file: Path, options: FileOptions) -> None:
    """Refuses a field whose quote is not closed: Arrow would take the rest of the file for its value."""
    with file.open("rb") as raw:
        quotes = sum(block.count(b'"') for block in iter(partial(raw.read, _BLOCK), b""))
    if quotes % 2 == 0:
        return
    line = 1
    try:
        with _records(file, options, strict=True) as rows:
            for _ in rows:
                line = rows.line_num + 1
    except csv.Error as why:
        # Quotes elsewhere than at the ends of a field are a part of it.
        if "end of data" in str(why):
            raise bad_row(file, f"line {line}", BadRow(0, None, "a quote is not closed")) from None


def _not_utf8(file: Path) -> Exception:
    with file.open("rb") as raw:
        for line, content in enumerate(raw, 1):
            try:
                content.decode()
            except UnicodeDecodeError:
                return bad_row(file, f"line {line}", BadRow(0, None, "it is not UTF-8"))
    return unreadable(file, "it is not UTF-8")
