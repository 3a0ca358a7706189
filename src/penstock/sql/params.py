"""Bound parameters: `?` by position, `:name` by name. They are replaced as tokens, never inside strings or comments."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from sqlglot.tokens import Token, TokenType

from penstock.errors import fail
from penstock.sql.tokens import Script

Place: TypeAlias = int | str
"""A parameter: its position, or its name."""

_STRINGS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING)
_PREFIXES = frozenset({"x", "r", "b", "n"})
"""Words that, like a text, would be one literal with a text after them."""


def template(sql: str) -> tuple[str, tuple[Place, ...]]:
    """The statement with its parameters as the named placeholders :p0, :p1 …, and what each of them stands for."""
    if "?" not in sql and ":" not in sql:
        return sql, ()
    out: list[str] = []
    places: list[Place] = []
    position = 0
    for start, end, name in _places(Script(sql).tokenize()):
        out += [sql[position:start], f" :p{len(places)} "]
        places.append(len(places) if name is None else name)
        position = end
    return "".join([*out, sql[position:]]), tuple(places)


def apply_params(sql: str, params: Sequence[object] | Mapping[str, object] | None) -> str:
    """Replaces every parameter by a literal. Raises PSK-1018 for a missing or unused one."""
    if params is None:
        return sql
    if not isinstance(params, (Mapping, Sequence)) or isinstance(params, (str, bytes)):
        raise fail("PSK-1018", "Parameters must be a list or a dict.", hint="Write [value] for a single ?.")
    tokens = Script(sql).tokenize()
    found = _places(tokens)
    joined = {t.end + 1 for t in tokens if t.token_type in _STRINGS or t.text.lower() in _PREFIXES}
    named = isinstance(params, Mapping)
    values: dict[object, object] = (
        {str(k): v for k, v in params.items()} if isinstance(params, Mapping) else dict(enumerate(params))
    )
    used: set[object] = set()
    out, position, number = [], 0, 0
    for start, end, name in found:
        key: object = name if named else number
        if named != (name is not None):
            raise fail("PSK-1018", "A dict of parameters needs :name placeholders, a list needs ? placeholders.")
        if key not in values:
            raise fail("PSK-1018", f"Parameter {name if named else number + 1} is missing.")
        before, after = sql[position:start], sql[end : end + 1]
        value = _literal(values[key])
        if len(sql[:start].rstrip()) in joined or (value.startswith("-") and after in (":", ".", "[")):
            value = f"({value})"
        out += [before, _apart(value, sql[max(0, start - 1) : start], after)]
        used.add(key)
        position, number = end, number + 1
    if len(used) < len(values):
        raise fail("PSK-1018", f"{len(values)} parameters were passed but {len(used)} are used.")
    return "".join([*out, sql[position:]])


def _places(tokens: Sequence[Token]) -> list[tuple[int, int, str | None]]:
    places: list[tuple[int, int, str | None]] = []
    for i, t in enumerate(tokens):
        if t.token_type is TokenType.PLACEHOLDER:
            places.append((t.start, t.end + 1, None))
        elif t.token_type is TokenType.QDCOLON and not (
            tokens[i - 1].end + 1 == t.start and _ends_value(tokens[i - 1])
        ):
            # `?::type` begins with one token.
            places.append((t.start, t.start + 1, None))
        elif t.token_type is TokenType.COLON and i + 1 < len(tokens) and tokens[i + 1].start == t.end + 1:
            after = tokens[i + 1]
            # `value:field` accesses a field.
            field = i > 0 and tokens[i - 1].end + 1 == t.start and _ends_value(tokens[i - 1])
            if after.text.isidentifier() and not field:
                places.append((t.start, after.end + 1, after.text))
    return places


def _apart(value: str, before: str, after: str) -> str:
    """The literal as tokens of its own: `5-?` is no comment if the value is negative."""
    left = "" if before.isspace() or before in ("", *"(,[=<>") else " "
    right = "" if after.isspace() or after in ("", *"),];:.[") else " "
    return f"{left}{value}{right}"


def _ends_value(token: Token) -> bool:
    return token.text.isidentifier() or token.token_type in (
        TokenType.R_PAREN,
        TokenType.R_BRACKET,
        TokenType.IDENTIFIER,
    )


def _literal(value: object) -> str:
    try:
        return literal(value)
    except RecursionError:
        raise fail("PSK-1018", "A parameter is nested too deeply.") from None
    except OverflowError:
        raise fail("PSK-1018", "A time is outside the years 1 to 9999 in UTC.") from None


def literal(value: object) -> str:
    """Formats a Python value as a Spark SQL literal."""
    if isinstance(value, np.generic):
        value = _plain(value)
    # A subclass may print its values in another way.
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            if not -(1 << 63) <= value < 1 << 63:
                return f"{int(value)}BD"
            return f"{int(value)}" if -(1 << 31) <= value < 1 << 31 else f"{int(value)}L"
        case float():
            number = float(value)
            return f"{number!r}D" if math.isfinite(number) else f"DOUBLE('{number}')"
        case decimal.Decimal():
            if not value.is_finite():
                raise fail("PSK-1018", f"A decimal parameter cannot be {value}.")
            return f"{value:f}BD"
        case str():
            escaped = str.replace(value, "\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case dt.datetime():
            if value != value:
                # pandas' NaT.
                return "NULL"
            if value.tzinfo is not None:
                value = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
        case dt.time():
            if value.tzinfo is not None:
                raise fail("PSK-1018", "A time of day with a time zone is not a value of SQL.")
            return f"TIME'{value.isoformat()}'"
        case dt.timedelta():
            return _interval(value)
        case bytes() | bytearray() | memoryview():
            return f"X'{bytes(value).hex()}'"
        case uuid.UUID():
            return f"'{value}'"
        case list() | tuple():
            return f"array({', '.join(literal(v) for v in value)})"
        case _:
            raise fail(
                "PSK-1018",
                f"A parameter of type {type(value).__name__} cannot be written as a literal.",
                hint="Pass None, bool, int, float, Decimal, str, bytes, UUID, date, datetime, time, timedelta, a number or time of NumPy, or a list of them.",
            )


_PLAIN: dict[str, Callable[[Any], object]] = {
    "b": bool,
    "i": int,
    "u": int,
    "f": float,
    "U": str,
    "S": bytes,
    "M": lambda v: v.astype("datetime64[us]").item(),
    "m": lambda v: v.astype("timedelta64[us]").item(),
}
"""How to make the value of a NumPy scalar, by the kind of its type."""


def _plain(value: np.generic) -> object:
    made = _PLAIN.get(value.dtype.kind)
    return value if made is None else made(value)


def _interval(value: dt.timedelta) -> str:
    sign, size = ("-", -value) if value < dt.timedelta() else ("", value)
    minutes, seconds = divmod(size.seconds, 60)
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{size.microseconds:06}"
    return f"INTERVAL '{sign}{size.days} {time}' DAY TO SECOND"
