"""JSON files with one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.catalog.convert import Misfit, array
from penstock.catalog.declared import declared
from penstock.catalog.variant import writer
from penstock.connect.rowfiles.badrow import BadRow, bad_row, unreadable
from penstock.connect.rowfiles.columns import Wanted, storable
from penstock.connect.rowfiles.csvrows import Step

_BATCH = 20_000
_MOST_DIGITS = 38
_UNFIT = (Misfit, pa.ArrowException, TypeError, ValueError, ArithmeticError, RecursionError)


class _Number(float):
    """A number and how it was written: a decimal must not lose digits."""

    text: str


def _number(text: str) -> _Number:
    made = _Number(text)
    made.text = text
    return made


class _Twice(Exception):
    """An object has two values of one name; the argument is the name."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [n for n, _ in pairs]
        raise _Twice(next(n for n in names if names.count(n) > 1))
    return made


_decoded = json.JSONDecoder(parse_float=_number, object_pairs_hook=_object).decode


def _objects(file: Path, step: Step) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with its line."""
    try:
        with file.open("rb") as raw:
            for line, content in enumerate(raw, 1):
                step(len(content), 0)
                if not content.strip():
                    continue
                try:
                    found = _decoded(content.decode("utf-8-sig"))
                except _Twice as why:
                    raise bad_row(file, f"line {line}", BadRow(0, str(why), "it is given twice")) from None
                except UnicodeDecodeError:
                    raise bad_row(file, f"line {line}", BadRow(0, None, "it is not UTF-8")) from None
                except (ValueError, RecursionError) as why:
                    if line == 1 and content.lstrip()[:1] == b"[":
                        raise unreadable(
                            file, "it is one JSON array", "Write one object per line: jq -c '.[]' FILE."
                        ) from None
                    raise bad_row(file, f"line {line}", BadRow(0, None, f"it is not JSON ({why})")) from None
                if not isinstance(found, dict):
                    hint = "Write one object per line: jq -c '.[]' FILE." if isinstance(found, list) else None
                    raise unreadable(file, f"line {line} is not a JSON object", hint)
                yield line, found
    except OSError as why:
        raise unreadable(file, why.strerror or str(why)) from None


def inferred(files: Sequence[Path], step: Step) -> list[pa.Field]:
    """The fields of all objects, in the order of their first appearance."""
    kinds: dict[str, tuple[str, pa.DataType | None]] = {}
    for file in files:
        for line, found in _objects(file, step):
            for name, value in found.items():
                try:
                    known = kinds.get(name.lower(), (name, None))[1]
                    kinds[name.lower()] = (kinds.get(name.lower(), (name, None))[0], _merged(known, _kind(value)))
                except Misfit as why:
                    raise unreadable(
                        file, f"line {line}: field {name} {why}", "Give the columns and their types with schema."
                    ) from None
    if not kinds:
        raise unreadable(files[0], "it is empty, so its columns are not known", "Give the columns with schema.")
    return [pa.field(name, _known(kind)) for name, kind in kinds.values()]


def _kind(value: Any) -> pa.DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        small = -(1 << 63) <= value < 1 << 63
        if not small and abs(value) >= 10**38:
            raise Misfit("has a number of more than 38 digits")
        return pa.int64() if small else pa.decimal128(38, 0)
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, list):
        element: pa.DataType | None = None
        for v in value:
            element = _merged(element, _kind(v))
        return pa.list_(pa.field("element", element or pa.null()))
    return pa.struct([pa.field(k, _kind(v) or pa.null()) for k, v in value.items()])


def _merged(a: pa.DataType | None, b: pa.DataType | None) -> pa.DataType | None:
    """The type that has the values of both."""
    t = pa.types
    if a is None or b is None or a.equals(b):
        return a if b is None else b
    if t.is_null(a) or t.is_null(b):
        return b if t.is_null(a) else a
    numbers = [k for k in (a, b) if t.is_integer(k) or t.is_decimal(k) or t.is_floating(k)]
    if len(numbers) == 2:
        return pa.float64() if any(t.is_floating(k) for k in numbers) else pa.decimal128(38, 0)
    if t.is_list(a) and t.is_list(b):
        return pa.list_(pa.field("element", _merged(a.value_type, b.value_type)))
    if t.is_struct(a) and t.is_struct(b):
        fields = {f.name: f.type for f in a}
        for f in b:
            fields[f.name] = _merged(fields.get(f.name), f.type)
        return pa.struct([pa.field(n, k) for n, k in fields.items()])
    raise Misfit("has values of different types")


def _known(kind: pa.DataType | None) -> pa.DataType:
    """A type without values that are always NULL; these become text."""
    if kind is None or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _known(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _known(f.type)) for f in kind])
    return kind


def read(file: Path, wanted: Wanted, step: Step) -> Iterator[pa.Table]:
    waiting: list[dict[str, Any]] = []
    lines: list[int] = []
    names = {f.name.lower(): f.name for f in wanted.fields}
    for line, found in _objects(file, step):
        row: dict[str, Any] = {}
        for name, value in found.items():
            target = names.get(name.lower())
            if target is None:
                if wanted.exact:
                    raise bad_row(file, f"line {line}", BadRow(0, None, f"the target has no column {name!r}"))
            elif target in row:
                raise bad_row(file, f"line {line}", BadRow(0, name, "it is given twice"))
            else:
                row[target] = value
        waiting.append(row)
        lines.append(line)
        if len(waiting) == _BATCH:
            yield _table(file, waiting, lines, wanted)
            step(0, len(waiting))
            waiting, lines = [], []
    if waiting:
        yield _table(file, waiting, lines, wanted)
        step(0, len(waiting))


def _table(file: Path, rows: list[dict[str, Any]], lines: list[int], wanted: Wanted) -> pa.Table:
    columns = []
    try:
        for f in wanted.fields:
            made = _column([_value(r, f, wanted.defaults) for r in rows], f)
            storable(made, f)
            columns.append(made)
    except BadRow as why:
        raise bad_row(file, f"line {lines[why.row]}", why) from None
    return pa.table(columns, schema=pa.schema([f.with_nullable(True) for f in wanted.fields]))


def _value(row: Mapping[str, Any], f: pa.Field, defaults: Mapping[str, object]) -> Any:
    if f.name not in row:
        default = defaults.get(f.name)
        return default() if callable(default) else default
    value = row[f.name]
    if pa.types.is_decimal(f.type) and isinstance(value, (_Number, str)):
        try:
            return Decimal(value.text if isinstance(value, _Number) else value)
        except ArithmeticError:
            return value
    return value


def _exact(value: Any) -> Any:
    """A value with its numbers as parse_json reads them: without an exponent they are decimals."""
    if isinstance(value, _Number):
        plain = value.text.lstrip("-").replace(".", "", 1)
        return Decimal(value.text) if plain.isdigit() and len(plain) <= _MOST_DIGITS else float(value)
    if isinstance(value, dict):
        return {k: _exact(v) for k, v in value.items()}
    return [_exact(v) for v in value] if isinstance(value, list) else value


def _column(values: list[Any], f: pa.Field) -> pa.Array:
    encode = writer(declared(f) or "")

    def made(part: list[Any]) -> pa.Array:
        return array(part if encode is None else [encode(_exact(v)) for v in part], f.type)

    try:
        return made(values)
    except _UNFIT:
        for i, value in enumerate(values):
            try:
                made([value])
            except _UNFIT as why:
                raise BadRow(i, f.name, str(why)) from None
        raise
