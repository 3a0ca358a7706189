"""Bound parameters: `?` by position, `:name` by name. They are replaced as tokens, never inside strings or comments."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from sqlglot.tokens import Token, TokenType

from penstock.errors import fail
from penstock.sql.tokens import Script

Place: TypeAlias = int | str
"""A parameter: its position, or its name."""


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
        out += [sql[position:start], _literal(values[key])]
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
        elif t.token_type is TokenType.COLON and i + 1 < len(tokens) and tokens[i + 1].start == t.end + 1:
            after = tokens[i + 1]
            # `value:field` accesses a field.
            field = i > 0 and tokens[i - 1].end + 1 == t.start and _ends_value(tokens[i - 1])
            if after.text.isidentifier() and not field:
                places.append((t.start, after.end + 1, after.text))
    return places


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
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if -(1 << 31) <= value < 1 << 31 else f"{value}L"
        case float():
            return f"{value!r}D" if value == value and abs(value) != float("inf") else f"DOUBLE('{value}')"
        case decimal.Decimal():
            if not value.is_finite():
                raise fail("PSK-1018", f"A decimal parameter cannot be {value}.")
            return f"{value:f}BD"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case dt.datetime():
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
        case bytes():
            return f"X'{value.hex()}'"
        case list() | tuple():
            return f"array({', '.join(literal(v) for v in value)})"
        case _:
            raise fail("PSK-1018", f"A parameter of type {type(value).__name__} cannot be written as a literal.")


def _interval(value: dt.timedelta) -> str:
    sign, size = ("-", -value) if value < dt.timedelta() else ("", value)
    minutes, seconds = divmod(size.seconds, 60)
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{size.microseconds:06}"
    return f"INTERVAL '{sign}{size.days} {time}' DAY TO SECOND"
