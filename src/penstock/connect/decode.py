"""Decodes lines of JSON to rows of a source."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from penstock.catalog.convert import Misfit, array
from penstock.catalog.declared import declared, fitted
from penstock.catalog.objects import Column
from penstock.catalog.types import schema_of
from penstock.connect.options import check_options, choice
from penstock.connect.types import INTERVALS, VARIANTS, refuse_read
from penstock.errors import PenstockError, fail

COLUMN_PREFIX = "json.column."
OPTIONS = ("on_error",)
_UNFIT = (Misfit, pa.ArrowException, TypeError, ValueError, OverflowError)
_MISSING = object()


class JsonDecoder:
    """Each line is an object or an array of objects. Each object becomes a row.

    A column is read from the key of its name, or from the dotted path in `json.column.<name>`; a missing value is NULL.
    Numbers and strings are converted if that is lossless; DECIMAL also from strings, BINARY from base64.
    `on_error = 'skip'` drops invalid rows and counts them in `skipped`; otherwise they raise PSK-5007.
    """

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        check_options("FORMAT JSON", options, OPTIONS, prefixes=(COLUMN_PREFIX,))
        refuse_read("FORMAT JSON", columns, INTERVALS, VARIANTS)
        self.schema = schema_of(columns)
        self.skipped = 0
        self._skip = choice("FORMAT JSON", "on_error", options.get("on_error", "fail"), ("fail", "skip")) == "skip"
        paths = {f.name: (f.name,) for f in self.schema}
        folded = {n.lower(): n for n in paths}
        chosen: dict[str, tuple[str, ...]] = {}
        for option, path in options.items():
            if not option.startswith(COLUMN_PREFIX):
                continue
            name = folded.get(option[len(COLUMN_PREFIX) :].lower())
            if name is None:
                raise fail(
                    "PSK-1004", f"{option!r} does not name a column.", hint=f"The columns are {', '.join(paths)}."
                )
            parts = tuple(path.split("."))
            if not all(parts):
                raise fail("PSK-1011", f"{option} = {path!r} is not a dotted path.")
            chosen[name] = parts
        self._paths = [chosen.get(n, p) for n, p in paths.items()]

    def decode(self, lines: Iterable[str | bytes]) -> pa.RecordBatch:
        """The rows of the lines, in order."""
        rows: list[list[Any]] = []
        for line in lines:
            try:
                rows += self._rows(line)
            except (ValueError, RecursionError) as why:
                self._bad(f"{_short(line)} is not JSON: {why}")
        try:
            columns = [self._column([r[i] for r in rows], f) for i, f in enumerate(self.schema)]
        except PenstockError:
            rows = [r for r in rows if self._fits(r)]
            columns = [self._column([r[i] for r in rows], f) for i, f in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rows(self, line: str | bytes) -> list[list[Any]]:
        value = json.loads(line, parse_constant=float)
        found = []
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                found.append([_at(item, p) for p in self._paths])
            else:
                self._bad(f"{_short(line)} is not an object")
        return found

    def _column(self, values: list[Any], f: pa.Field) -> pa.Array:
        try:
            out = array([_prepared(v, f.type) for v in values], f.type)
            kind = declared(f)
            out = out if kind is None else fitted(out, kind)
        except _UNFIT as why:
            raise fail("PSK-5007", f"Column {f.name!r} ({f.type}): {why}") from why
        if out.null_count and not f.nullable:
            raise fail("PSK-5007", f"Column {f.name!r} is NOT NULL, but a row has no value for it.")
        return out

    def _fits(self, row: list[Any]) -> bool:
        try:
            for value, f in zip(row, self.schema, strict=True):
                self._column([value], f)
        except PenstockError as why:
            if not self._skip:
                raise
            self._bad(why.detail)
            return False
        return True

    def _bad(self, why: str) -> None:
        if not self._skip:
            raise fail("PSK-5007", why)
        self.skipped += 1


def _at(item: dict[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path; None if the path does not exist. A key that itself contains the dots takes precedence."""
    if len(path) > 1:
        whole = item.get(".".join(path), _MISSING)
        if whole is not _MISSING:
            return whole
    value: Any = item
    for part in path:
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _prepared(value: Any, kind: pa.DataType) -> Any:
    """Converts values of types that JSON lacks."""
    if value is None:
        return None
    t = pa.types
    if t.is_string(kind) and isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    if t.is_decimal(kind) and isinstance(value, (str, float)):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            raise Misfit(f"{value!r} is not a decimal number") from None
    if t.is_binary(kind) and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise Misfit(f"{value!r} is not base64") from None
    if t.is_list(kind) and isinstance(value, list):
        return [_prepared(v, kind.value_type) for v in value]
    if t.is_map(kind) and isinstance(value, dict):
        return {k: _prepared(v, kind.item_type) for k, v in value.items()}
    if t.is_struct(kind) and isinstance(value, dict):
        # Drop undeclared fields, just like undeclared columns.
        return {f.name: _prepared(value.get(f.name), f.type) for f in kind}
    return value


def _short(line: str | bytes) -> str:
    text = repr(line)
    return text if len(text) <= 80 else text[:77] + "…"
