"""Types that Arrow lacks: VARCHAR(n), CHAR(n), TIME(p), intervals and VARIANT.

The metadata of an Arrow field has the declared type, for `coerce` and for passing rows to Spark. VARCHAR(n) and CHAR(n) are strings,
whose length is enforced on write, as in Spark. A year-month interval is a number of months.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

DECLARED = b"penstock.type"
"""The key of the declared type in the metadata of an Arrow field."""

_SIZED = re.compile(r"\b(varchar|char)\((\d+)\)")
# Quoted names of struct fields are not types.
_PARTS = re.compile(r"`(?:[^`]|``)*`|\b(?:varchar|char)\(\d+\)")


# The size of the last field of an interval, in microseconds or months.
_UNITS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1, "year": 12, "month": 1}
_NAMES = re.compile(r"`(?:[^`]|``)*`|[a-z_]+(?!\w*:)")
_DECLARED = re.compile(r"`(?:[^`]|``)*`|\b(varchar|char|time)\(|\b(interval|variant)\b(?!`?:)")


class Unsuitable(ValueError):
    """A value that its column cannot hold: its 0-based number, the reason and the code."""

    def __init__(self, at: int, reason: str, code: str = "PSK-5003") -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason
        self.code = code


@lru_cache(maxsize=4096)
def is_declared(spark_type: str) -> bool:
    """Whether a type is, or contains, one that Arrow lacks."""
    return any(m[1] or m[2] for m in _DECLARED.finditer(spark_type))


def contains(spark_type: str, *words: str) -> bool:
    """Whether a type is, or contains, one whose name begins with one of the words."""
    return any(m[0].startswith(words) for m in _NAMES.finditer(spark_type))


def declared(field: pa.Field) -> str | None:
    """The declared type of a field, if Arrow lacks it."""
    found = (field.metadata or {}).get(DECLARED)
    return None if found is None else found.decode()


@lru_cache(maxsize=4096)
def without_lengths(spark_type: str) -> str:
    """The type of the values in Spark: STRING in place of VARCHAR(n) and CHAR(n)."""
    if "char(" not in spark_type:
        return spark_type
    return _PARTS.sub(lambda m: m[0] if m[0].startswith("`") else "string", spark_type)


def char_length(spark_type: str | None) -> int | None:
    """n of CHAR(n); None for every other type."""
    found = _SIZED.fullmatch(spark_type or "")
    return int(found[2]) if found and found[1] == "char" else None


def fitted(values: pa.Array | pa.ChunkedArray, spark_type: str) -> pa.Array | pa.ChunkedArray:
    """The values in the stored form of the type: CHAR is padded with blanks to its length, and blanks beyond the length are cut.

    Raises Unsuitable for a string that is longer without its trailing blanks (its length is the number of code points), and for a time or an interval
    that is finer than its type.
    """
    if isinstance(values, pa.ChunkedArray):
        made, before = [], 0
        for chunk in values.chunks:
            try:
                made.append(fitted(chunk, spark_type))
            except Unsuitable as why:
                raise Unsuitable(before + why.at, why.reason, why.code) from None
            before += len(chunk)
        return pa.chunked_array(made, values.type)
    change, rest = _parsed(spark_type, 0)
    assert rest == len(spark_type), spark_type
    return change(values)


_Change = Callable[[pa.Array], pa.Array]


def _same(values: pa.Array) -> pa.Array:
    return values


def _string(kind: str, length: int) -> _Change:
    def change(values: pa.Array) -> pa.Array:
        lengths = pc.utf8_length(values)
        bounds = pc.min_max(lengths)
        most, least = bounds["max"].as_py(), bounds["min"].as_py()
        if most is None:
            return values
        if most > length:
            over = pc.greater(lengths, length)
            trimmed = pc.utf8_rtrim(values, characters=" ")
            long = pc.greater(pc.utf8_length(trimmed), length)
            at = pc.index(long, True).as_py()
            if at >= 0:
                size = pc.utf8_length(trimmed[at]).as_py()
                raise Unsuitable(at, f"{size} characters are too long for {kind}({length})", "PSK-2009")
            values = pc.if_else(over, pc.utf8_slice_codeunits(values, 0, length), values)
        if kind == "char" and least < length:
            values = pc.utf8_rpad(values, length, padding=" ")
        return values

    return change


def _multiples(kind: str, unit: int) -> _Change:
    def change(values: pa.Array) -> pa.Array:
        numbers = values.cast(pa.int64())
        whole = pc.equal(pc.multiply(pc.divide(numbers, unit), unit), numbers)
        at = pc.index(whole, False).as_py()
        if at >= 0:
            raise Unsuitable(at, f"{values[at]} is finer than {kind.upper()}")
        return values

    return change


def _leaf(kind: str) -> _Change:
    word = kind.split()[-1]
    if kind.startswith("interval ") and _UNITS[word] > 1:
        return _multiples(kind, _UNITS[word])
    if kind.startswith("time("):
        return _multiples(kind, 10 ** (9 - int(kind[5:-1])))
    return _same


def _parsed(text: str, at: int) -> tuple[_Change, int]:
    """The change for the type that starts at `at`, and the end of that type. The text is a type that the catalogue has accepted."""
    if text.startswith("array<", at):
        element, end = _parsed(text, at + len("array<"))
        return _within([element]), end + 1
    if text.startswith("map<", at):
        key, end = _parsed(text, at + len("map<"))
        value, end = _parsed(text, end + 1)
        return _within([key, value]), end + 1
    if text.startswith("struct<", at):
        at += len("struct<")
        fields: list[_Change] = []
        while text[at] != ">":
            at = after_name(text, at + (text[at] == ","))
            field, at = _parsed(text, at)
            fields.append(field)
        return _within(fields), at + 1
    found = _SIZED.match(text, at)
    if found is not None:
        return _string(found[1], int(found[2])), found.end()
    end, depth = at, 0
    while end < len(text) and (depth or text[end] not in ",>"):
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    return _leaf(text[at:end]), end


def after_name(text: str, at: int) -> int:
    """The start of the type of a struct's field."""
    if text[at] != "`":
        return text.index(":", at) + 1
    found = re.compile(r"`(?:[^`]|``)*`:").match(text, at)
    assert found is not None, text
    return found.end()


def _within(parts: list[_Change]) -> _Change:
    """Changes the values inside arrays, maps or structs."""
    if all(p is _same for p in parts):
        return _same

    def change(values: pa.Array) -> pa.Array:
        kind = values.type
        if pa.types.is_struct(kind):
            fields = [_at_parent(p, values.field(i), None) for i, p in enumerate(parts)]
            return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())
        if pa.types.is_map(kind):
            pairs = [_at_parent(p, v, values) for p, v in zip(parts, (values.keys, values.items), strict=True)]
            inside = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        else:
            inside = _at_parent(parts[0], values.values, values)
        buffers = values.buffers()[:2]
        return pa.Array.from_buffers(kind, len(values), buffers, values.null_count, values.offset, [inside])

    return change


def _at_parent(change: _Change, inside: pa.Array, lists: pa.Array | None) -> pa.Array:
    """Changes the values inside lists; the error counts lists, not values."""
    try:
        return change(inside)
    except Unsuitable as why:
        if lists is None:
            raise
        ends = lists.offsets.to_numpy()
        raise Unsuitable(int(ends.searchsorted(why.at, side="right")) - 1, why.reason, why.code) from None
