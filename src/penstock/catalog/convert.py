"""Lossless conversion of Python values to an Arrow type.

`pyarrow.array` alone is too lenient: it truncates 1.5 to 1, reads a string as a list of characters and an integer as
microseconds, and drops unknown struct fields. A converter runs before it for each type where that matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.catalog.check import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO, OUT_OF_RANGE

Convert = Callable[[Any], Any]
_LONGEST = 80
_FIRST_MS, _LAST_MS = FIRST_MICRO // 1000, LAST_MICRO // 1000


class Misfit(ValueError):
    """A value that does not fit; the message is the reason."""


def shown(value: Any) -> str:
    """Formats a value for an error message, truncated if it is long."""
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
    """Parses an ISO 8601 date or timestamp; UTC if it has no offset."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise Misfit(f"{shown(text)} is not an ISO 8601 timestamp") from None


def _timestamp(value: Any) -> Any:
    if isinstance(value, datetime):
        # In the first and last year, a time zone offset can leave the supported range; and pandas' NaT has no year.
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
    """A datetime64 in a unit that Arrow accepts, or None for NaT."""
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


def _time(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = time.fromisoformat(value.strip())
        except ValueError:
            raise Misfit(f"{shown(value)} is not an ISO 8601 time of day") from None
    if not isinstance(value, time):
        raise Misfit(f"{shown(value)} is not a time of day")
    if value.tzinfo is not None:
        raise Misfit(f"{shown(value)} has a time zone")
    return value


def _duration(value: Any) -> Any:
    """A timedelta; None for NaT. A number has no unit."""
    if hasattr(value, "to_pytimedelta") and value == value:
        if value.nanoseconds:
            raise Misfit(f"{shown(value)} is finer than a microsecond")
        return value.to_pytimedelta()
    if hasattr(value, "dtype") and value.dtype.kind == "m":
        made = value.astype("timedelta64[us]")
        if value == value and made != value:
            raise Misfit(f"{shown(value)} is finer than a microsecond")
        value = made.item()
    if value is None or value != value:
        return None
    if not isinstance(value, timedelta):
        raise Misfit(f"{shown(value)} is not a timedelta")
    return value


def _void(value: Any) -> Any:
    raise Misfit(f"{shown(value)} is not NULL")


def _list(element: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, (str, bytes, Mapping)):
            raise Misfit(f"{shown(value)} is not a list")
        return [v if v is None else element(v) for v in value] if element else list(value)

    return convert


def _map(key: Convert | None, item: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        pairs = list(value.items()) if isinstance(value, Mapping) else [_pair(entry) for entry in value]
        made = [(key(k) if key and k is not None else k, item(v) if item and v is not None else v) for k, v in pairs]
        # Some maps with a NULL key crash Arrow, and the process with it.
        if any(k is None for k, _ in made):
            raise Misfit(f"{shown(value)} has a NULL key")
        if len(made) > 1 and len({_identity(k) for k, _ in made}) < len(made):
            raise Misfit(f"{shown(value)} has a duplicate key")
        return made

    return convert


def _pair(entry: Any) -> tuple[Any, Any]:
    """An entry of a map that is a list: a pair or, in a format without maps, a struct."""
    if isinstance(entry, Mapping):
        if set(entry) != {"key", "value"}:
            raise Misfit(f"{shown(entry)} is not an entry of a map")
        return entry["key"], entry["value"]
    key, value = entry
    return key, value


def _identity(key: Any) -> Any:
    """The identity of a map key: all NaNs are equal, and a time without a zone is in UTC."""
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
        return {k: c(v) if (c := fields[k]) and v is not None else v for k, v in value.items()}

    return convert


@lru_cache(maxsize=4096)
def converter(kind: pa.DataType) -> Convert | None:
    """The converter that runs before `pyarrow.array`; None if `pyarrow.array` is strict enough for the type."""
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
    if t.is_time(kind):
        return _time
    if t.is_duration(kind):
        return _duration
    if t.is_null(kind):
        return _void
    if t.is_list(kind):
        return _list(converter(kind.value_type))
    if t.is_map(kind):
        return _map(converter(kind.key_type), converter(kind.item_type))
    if t.is_struct(kind):
        return _struct(kind)
    return None


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Converts the values to an Arrow array. Raises Misfit or an Arrow error if one of them does not fit."""
    convert = converter(kind)
    if convert is not None:
        values = [v if v is None else convert(v) for v in values]
    return pa.array(values, kind)
