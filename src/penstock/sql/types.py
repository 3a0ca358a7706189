"""Column types: SQL syntax → Spark's simple string."""

from __future__ import annotations

import re

from sqlglot.tokens import TokenType

from penstock.catalog.types import MAX_TIME
from penstock.errors import Position
from penstock.sql.limits import MAX_TYPE
from penstock.sql.names import nearest, unfit
from penstock.sql.tokens import Cursor

_SIMPLE = {
    "BOOLEAN": "boolean",
    "BOOL": "boolean",
    "TINYINT": "tinyint",
    "BYTE": "tinyint",
    "SMALLINT": "smallint",
    "SHORT": "smallint",
    "INT2": "smallint",
    "INT": "int",
    "INTEGER": "int",
    "INT4": "int",
    "BIGINT": "bigint",
    "LONG": "bigint",
    "INT8": "bigint",
    "FLOAT": "float",
    "REAL": "float",
    "FLOAT4": "float",
    "DOUBLE": "double",
    "DOUBLE PRECISION": "double",
    "FLOAT8": "double",
    "STRING": "string",
    "TEXT": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "CHARACTER": "string",
    "CHARACTER VARYING": "string",
    "BINARY": "binary",
    "BYTEA": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "VARIANT": "variant",
}
_STRINGS = ("VARCHAR", "CHAR", "CHARACTER", "CHARACTER VARYING")
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


def parse_type(cursor: Cursor, level: int = 1) -> str:
    """Parses a type and returns Spark's simple string. Raises PSK-1013 for an unknown type."""
    if level > MAX_TYPE:
        raise cursor.fail("PSK-1020", f"the type is nested more than {MAX_TYPE} levels deep")
    start = cursor.peek()
    where = cursor.here()
    if start is None or start.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.COMMA, TokenType.R_PAREN):
        raise cursor.error("expected a type")
    word = " ".join(cursor.next().text.upper().split())
    if word == "DOUBLE":
        cursor.accept("PRECISION")
    varying = word != "CHAR" and (word != "CHARACTER" or cursor.accept("VARYING"))
    if word in _SIMPLE:
        return _sized(cursor, where, word, varying) if word in _STRINGS and cursor.at("(") else _SIMPLE[word]
    if word == "TIME":
        return f"time({_precision(cursor, where)})"
    if word == "INTERVAL":
        return _interval(cursor, where)
    if word in ("VOID", "NULL"):
        raise cursor.fail("PSK-2010", "a column of type VOID holds only NULL", hint="Declare a type.", position=where)
    if word in _DECIMALS:
        precision, scale = 10, 0
        if cursor.accept("("):
            precision = cursor.integer()
            scale = cursor.integer() if cursor.accept(",") else 0
            cursor.expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise cursor.fail("PSK-1013", f"decimal({precision},{scale}) is out of range", position=where)
        return f"decimal({precision},{scale})"
    if word == "ARRAY":
        return f"array<{_inner(cursor, 1, level)[0]}>"
    if word == "MAP":
        key, value = _inner(cursor, 2, level)
        return f"map<{key},{value}>"
    if word == "STRUCT":
        return _struct(cursor, level)
    known = [*_SIMPLE, *_DECIMALS, "ARRAY", "MAP", "STRUCT", "TIME", "INTERVAL"]
    best = nearest(word, known)
    hint = f"Did you mean {best}?" if best else "Types are Spark SQL's: BIGINT, DOUBLE, STRING, TIMESTAMP, ARRAY<…> …"
    raise cursor.fail("PSK-1013", f"unknown type {word.lower()}", hint=hint, position=where)


def _precision(cursor: Cursor, where: Position) -> int:
    if not cursor.accept("("):
        return MAX_TIME
    digits = cursor.integer()
    cursor.expect(")")
    if digits > MAX_TIME:
        raise cursor.fail("PSK-1013", f"time({digits}) is out of range", hint=f"At most {MAX_TIME}.", position=where)
    return digits


def _interval(cursor: Cursor, where: Position) -> str:
    words = [w for w in _UNITS if cursor.accept(w)]
    if words and cursor.accept("TO"):
        words += [w for w in _UNITS if cursor.accept(w)]
    family = next((f for f in (_UNITS[:2], _UNITS[2:]) if set(words) <= set(f)), None)
    places = [_UNITS.index(w) for w in words]
    if not words or family is None or places != sorted(set(places)):
        raise cursor.fail(
            "PSK-2010",
            "an INTERVAL column needs its fields",
            hint="Write INTERVAL YEAR TO MONTH or INTERVAL DAY TO SECOND; months and days are not comparable.",
            position=where,
        )
    return f"interval {' to '.join(words).lower()}"


def _sized(cursor: Cursor, where: Position, word: str, varying: bool) -> str:
    cursor.expect("(")
    length = cursor.integer()
    cursor.expect(")")
    if not 1 <= length < 1 << 31:
        raise cursor.fail("PSK-1013", f"{word.lower()}({length}) is out of range", position=where)
    return f"{'varchar' if varying else 'char'}({length})"


def _inner(cursor: Cursor, count: int, level: int) -> list[str]:
    cursor.expect("<")
    types = [parse_type(cursor, level + 1)]
    while len(types) < count:
        cursor.expect(",")
        types.append(parse_type(cursor, level + 1))
    _close(cursor)
    return types


def _struct(cursor: Cursor, level: int) -> str:
    cursor.expect("<")
    fields = []
    while True:
        where = cursor.here()
        name = cursor.name("a field name")
        reason = unfit(name)
        if reason is not None:
            raise cursor.fail("PSK-1015", reason, hint="Choose another name.", position=where)
        cursor.accept(":")
        shown = name if _BARE.match(name) else "`" + name.replace("`", "``") + "`"
        fields.append(f"{shown}:{parse_type(cursor, level + 1)}")
        if not cursor.accept(","):
            break
    _close(cursor)
    return f"struct<{','.join(fields)}>"


def _close(cursor: Cursor) -> None:
    if not cursor.accept(">"):
        raise cursor.error("expected >")
