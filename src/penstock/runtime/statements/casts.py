"""Spark's CAST in ANSI mode, of single values, without Spark.

Only conversions whose result is certain are made. For anything else, and for every error, the answer is None: Spark converts the
value, or words the refusal.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
INTEGERS = frozenset(_BITS)
_EXACT = 1 << 53
"""Up to here, doubles have every integer."""
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)
MAX_DIGITS = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?", re.ASCII)
_REAL = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?", re.ASCII)
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})


@dataclass(frozen=True, slots=True)
class Constant:
    """A value and its Spark type: `void`, `decimal` for every precision, or the simple string of another scalar type.

    The scale of a decimal is that of its value. Timestamps are datetimes in UTC; those of `timestamp_ntz` have no zone.
    """

    type: str
    value: Any


def decimal_type(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a type such as `decimal(10,2)`; None for other types."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def fits(value: int, kind: str) -> bool:
    """Whether an integer is in the range of a type."""
    half = 1 << (_BITS[kind] - 1)
    return -half <= value < half


def rounded(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """The value of `decimal(precision, scale)` that Spark stores; None if it overflows."""
    made = value.quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)
    if len(made.as_tuple().digits) > precision and made:
        return None
    return plain(made)


def plain(value: Decimal) -> Decimal:
    """Java's decimals have no negative zero."""
    return value if value else value.copy_abs()


def cast(given: Constant, kind: str) -> Constant | None:
    """CAST(given AS kind); None if Spark has to do it. `kind` is the simple string of a type."""
    sized = decimal_type(kind)
    target = "decimal" if sized else kind
    convert = _TARGETS.get(target)
    if convert is None or kind == "decimal":
        return None
    if given.value is None:
        # A NULL with a type is refused where values of the type are.
        return Constant(target, None) if given.type in ("void", target) else None
    made = convert(given, *sized) if sized else convert(given, kind) if target in INTEGERS else convert(given)
    return None if made is None else Constant(target, made)


def _integer(given: Constant, kind: str) -> int | None:
    value = given.value
    match given.type:
        case "tinyint" | "smallint" | "int" | "bigint":
            made = value
        case "boolean":
            made = int(value)
        case "decimal":
            made = int(value)
        case "double" | "float":
            if not math.isfinite(value) or abs(value) >= _EXACT:
                return None
            made = int(value)
        case "string":
            if not _DIGITS.fullmatch(value):
                return None
            made = int(value)
        case _:
            return None
    return made if fits(made, kind) else None


def _double(given: Constant) -> float | None:
    value = given.value
    match given.type:
        case "double" | "float":
            return float(value)
        case "tinyint" | "smallint" | "int" | "bigint" | "boolean" | "decimal":
            return float(value)
        case "string":
            return real(value)
        case _:
            return None


def real(text: str) -> float | None:
    """A number as a double, if it is neither too large nor too small for one."""
    if not _REAL.fullmatch(text):
        return None
    made = float(text)
    if made == 0.0:
        return made if not any(c in "123456789" for c in re.split("[eE]", text)[0]) else None
    return made if 1e-300 < abs(made) < 1e300 else None


def _float(given: Constant) -> float | None:
    value = given.value
    match given.type:
        case "float":
            return float(value)
        case "double":
            return single(value)
        case "tinyint" | "smallint" | "int" | "bigint" | "boolean":
            return single(float(value)) if abs(value) <= _EXACT else None
        case "decimal":
            near = float(value)
            # Rounding twice differs from rounding once if the first result is half-way between two floats.
            return single(near) if near == value or not _half_way(near) else None
        case _:
            return None


def single(value: float) -> float | None:
    """The nearest float; None beyond the largest and below the smallest normal one."""
    if value == 0.0 or not math.isfinite(value):
        return value
    if not 1e-37 < abs(value) < 3e38:
        return None
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _half_way(value: float) -> bool:
    (bits,) = struct.unpack("Q", struct.pack("d", value))
    return bool(bits & 0x1FFFFFFF == 0x10000000)


def _decimal(given: Constant, precision: int, scale: int) -> Decimal | None:
    value = given.value
    match given.type:
        case "tinyint" | "smallint" | "int" | "bigint" | "boolean":
            return rounded(Decimal(int(value)), precision, scale)
        case "decimal":
            return rounded(value, precision, scale)
        case "double":
            return _from_double(value, precision, scale)
        case "string":
            return rounded(Decimal(value), precision, scale) if _NUMBER.fullmatch(value) else None
        case _:
            return None


def _from_double(value: float, precision: int, scale: int) -> Decimal | None:
    """Java may write a double with other last digits than Python, so the result must not depend on those."""
    if not math.isfinite(value) or abs(value) > 1e30:
        return None
    exact = Decimal(repr(value))
    slack = _CONTEXT.multiply(abs(exact), Decimal("1e-15"))
    made = {rounded(d, precision, scale) for d in (_CONTEXT.subtract(exact, slack), exact, _CONTEXT.add(exact, slack))}
    return made.pop() if len(made) == 1 else None


def _string(given: Constant) -> str | None:
    value = given.value
    match given.type:
        case "string":
            return str(value)
        case "tinyint" | "smallint" | "int" | "bigint":
            return str(value)
        case "boolean":
            return "true" if value else "false"
        case "decimal":
            return f"{value:f}"
        case "date":
            return str(value.isoformat())
        case "timestamp" | "timestamp_ntz":
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return str(text.rstrip("0") if "." in text else text)
        case _:
            return None


def _boolean(given: Constant) -> bool | None:
    value = given.value
    match given.type:
        case "boolean":
            return bool(value)
        case "tinyint" | "smallint" | "int" | "bigint" | "decimal":
            return bool(value)
        case "double":
            return bool(value) if math.isfinite(value) else None
        case "string":
            text = value.lower() if value.isascii() else ""
            return True if text in _TRUE else False if text in _FALSE else None
        case _:
            return None


def _date(given: Constant) -> dt.date | None:
    value = given.value
    match given.type:
        case "date":
            return value  # type: ignore[no-any-return]
        case "timestamp" | "timestamp_ntz":
            return value.date()  # type: ignore[no-any-return]
        case "string":
            day: dt.date | None = _parsed(value, _DATE, dt.date)
            return day
        case _:
            return None


def _parsed(text: str, pattern: re.Pattern[str], kind: Any) -> Any:
    if not pattern.fullmatch(text):
        return None
    try:
        return kind.fromisoformat(text)
    except ValueError:
        return None


def _timestamp(given: Constant) -> dt.datetime | None:
    found = _timestamp_ntz(given)
    return None if found is None else found.replace(tzinfo=dt.UTC)


def _timestamp_ntz(given: Constant) -> dt.datetime | None:
    """Without the zone, which is always UTC."""
    value = given.value
    match given.type:
        case "timestamp" | "timestamp_ntz":
            return value.replace(tzinfo=None)  # type: ignore[no-any-return]
        case "date":
            return dt.datetime(value.year, value.month, value.day)
        case "string":
            made = _parsed(value, _TIME, dt.datetime)
            if made is not None:
                return made  # type: ignore[no-any-return]
            day = _parsed(value, _DATE, dt.date)
            return None if day is None else dt.datetime(day.year, day.month, day.day)
        case _:
            return None


def _binary(given: Constant) -> bytes | None:
    match given.type:
        case "binary":
            return bytes(given.value)
        case "string":
            return str(given.value).encode()
        case _:
            return None


_TARGETS: dict[str, Any] = {
    **dict.fromkeys(INTEGERS, _integer),
    "double": _double,
    "float": _float,
    "decimal": _decimal,
    "string": _string,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "binary": _binary,
}
