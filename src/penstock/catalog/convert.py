"""Python values made fit for an Arrow type, without loss.

`pyarrow.array` alone is too willing: it truncates 1.5 to 1, takes a string for a list of characters, an integer for
microseconds, and drops unknown struct fields. A converter stands before it for each type where that matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.catalog.check import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO, OUT_OF_RANGE

Convert = Callable[[Any], Any]
_LONGEST = 80
_FIRST_MS, _LAST_MS = FIRST_MICRO // 1000, LAST_MICRO // 1000


class Misfit(ValueError):
    """A value that does not fit; the text says why."""


def shown(value: Any) -> str:
    """A value in an error: not all of it if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _integer(value: Any) -> Any:
    if isinstance(value, float):
        if not value.is_integer():
            raise Misfit(f"{shown(value)} is not a whole number")
        return int(value)
    return value


def _double(value: Any) -> Any:
    if isinstance(value, bool):
        raise Misfit(f"{shown(value)} is not a number")
    return value


def _float(value: Any) -> Any:
    _double(value)
    if isinstance(value, float) and math.isfinite(value) and abs(value) > 3.4028235677973366e38:
        raise Misfit(f"{shown(value)} is out of range")
    return value


def _string(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise Misfit(f"{shown(value)} is not a string")
    return value


def _binary(value: Any) -> Any:
    if isinstance(value, str):
        raise Misfit(f"{shown(value)} is a string, not bytes")
    return value


def parse_timestamp(text: str) -> datetime:
    """ISO 8601 date or date and time; without an offset it is UTC."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise Misfit(f"{shown(text)} is not an ISO 8601 timestamp") from None


def _timestamp(value: Any) -> Any:
    if isinstance(value, datetime):
        # In the first and last years a zone can lead out of what a time can be; and pandas' NaT has no year.
        return value if 1 < value.year < 9999 else _at_the_edge(value)
    if isinstance(value, bool):
        raise Misfit(f"{value!r} is not a timestamp")
    if isinstance(value, int):
        if not _FIRST_MS <= value <= _LAST_MS:
            raise Misfit(f"{shown(value)} {OUT_OF_RANGE}")
        return value * 1000
    if isinstance(value, str):
        return _timestamp(parse_timestamp(value))
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    if isinstance(value, float):
        raise Misfit(f"{value!r} is not a timestamp")
    if hasattr(value, "dtype"):
        return _timestamp(int(value)) if value.dtype.kind in "iu" else _numpy_time(value, "datetime64[us]")
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _at_the_edge(value: datetime) -> datetime | None:
    if value != value:
        return None
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Misfit(f"{shown(value)} {OUT_OF_RANGE}") from None


def _numpy_time(value: Any, unit: str) -> Any:
    """A datetime64 in a unit that Arrow takes, or None for its NaT."""
    if value.dtype.kind != "M":
        raise Misfit(f"{shown(value)} is not a time")
    if value != value:
        return None
    if not FIRST_DAY <= int(value.astype("datetime64[D]").astype("int64")) <= LAST_DAY:
        raise Misfit(f"{shown(value)} {OUT_OF_RANGE}")
    made = value.astype(unit)
    if made != value:
        raise Misfit(f"{shown(value)} is finer than {'a day' if unit.endswith('[D]') else 'a microsecond'}")
    return made.item()


def _date(value: Any) -> Any:
    if isinstance(value, datetime):
        if value != value:
            return None
        if value.timetz() != time():
            raise Misfit(f"{shown(value)} has a time of day")
        return value.date()
    if isinstance(value, str):
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            raise Misfit(f"{shown(value)} is not an ISO 8601 date") from None
    if hasattr(value, "dtype"):
        return _numpy_time(value, "datetime64[D]")
    if value is not None and not isinstance(value, date):
        raise Misfit(f"{shown(value)} is not a date")
    return value


def _list(element: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, (str, bytes, Mapping)):
            raise Misfit(f"{shown(value)} is not a list")
        return [element(v) for v in value] if element else list(value)

    return convert


def _map(key: Convert | None, item: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        pairs = list(value.items()) if isinstance(value, Mapping) else [(k, v) for k, v in value]
        made = [(key(k) if key and k is not None else k, item(v) if item and v is not None else v) for k, v in pairs]
        # Arrow ends the process over some maps with NULL for a key.
        if any(k is None for k, _ in made):
            raise Misfit(f"{shown(value)} has NULL for a key")
        if len(made) > 1 and len({_identity(k) for k, _ in made}) < len(made):
            raise Misfit(f"{shown(value)} has a key twice")
        return made

    return convert


def _identity(key: Any) -> Any:
    """What makes two keys of a map one: all NaN are, and a time without a zone is in UTC."""
    if isinstance(key, datetime):
        return key if key.tzinfo is not None else key.replace(tzinfo=UTC)
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key if key == key else "NaN"


def _struct(kind: pa.StructType) -> Convert:
    fields = {kind.field(i).name: converter(kind.field(i).type) for i in range(kind.num_fields)}

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, (tuple, list)):
            if len(value) != len(fields):
                raise Misfit(f"{shown(value)} has {len(value)} values for {len(fields)} fields")
            value = dict(zip(fields, value, strict=True))
        if not isinstance(value, Mapping):
            raise Misfit(f"{shown(value)} is not a struct")
        unknown = [k for k in value if k not in fields]
        if unknown:
            raise Misfit(f"there is no field {unknown[0]!r}")
        return {k: fields[k](v) if fields[k] else v for k, v in value.items()}  # type: ignore[misc]

    return convert


@lru_cache(maxsize=4096)
def converter(kind: pa.DataType) -> Convert | None:
    """What a value goes through before `pyarrow.array`; None if that is strict enough by itself."""
    t = pa.types
    if t.is_integer(kind):
        return _integer
    if t.is_float32(kind):
        return _float
    if t.is_floating(kind):
        return _double
    if t.is_string(kind):
        return _string
    if t.is_binary(kind):
        return _binary
    if t.is_timestamp(kind):
        return _timestamp
    if t.is_date(kind):
        return _date
    if t.is_list(kind):
        return _list(converter(kind.value_type))
    if t.is_map(kind):
        return _map(converter(kind.key_type), converter(kind.item_type))
    if t.is_struct(kind):
        return _struct(kind)
    return None


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as an Arrow array; raises Misfit or an Arrow error if one of them does not fit."""
    convert = converter(kind)
    if convert is not None:
        values = [v if v is None else convert(v) for v in values]
    return pa.array(values, kind)
