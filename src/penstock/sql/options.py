"""WITH (…) options: which statement allows which, and how a list of them is read."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokens import Token, TokenType

from penstock.errors import Position
from penstock.sql.names import nearest
from penstock.sql.tokens import Cursor, is_name

Substitute = Callable[[str], str]

ALLOWED: dict[str, frozenset[str]] = {
    "SOURCE": frozenset({"max_future_skew", "idle_timeout", "retain_history", "watermark_per"}),
    "TABLE": frozenset({"retain_history"}),
    "LOOKUP TABLE": frozenset(
        {
            "connector",
            "strategy",
            "cache.max_entries",
            "cache.max_bytes",
            "cache.ttl",
            "cache.negative_ttl",
            "refresh",
        }
    ),
    "STREAM": frozenset({"retain_history", "state_ttl", "max_state_bytes", "unbounded_state", "asof", "max_depth"}),
    "MATERIALIZED VIEW": frozenset(
        {"retain_history", "state_ttl", "max_state_bytes", "unbounded_state", "asof", "max_depth"}
    ),
    "SINK": frozenset({"state_ttl", "max_state_bytes", "unbounded_state", "asof", "max_depth"}),
    "SUBSCRIBE": frozenset({"snapshot", "progress", "envelope"}),
}
VALUES: dict[str, frozenset[str]] = {
    "unbounded_state": frozenset({"true", "false"}),
    "asof": frozenset({"eager", "watermark"}),
    "strategy": frozenset({"replicated", "on-demand"}),
    "snapshot": frozenset({"true", "false"}),
    "progress": frozenset({"true", "false"}),
    "envelope": frozenset({"diff", "upsert", "debezium"}),
}


def parse_options(cursor: Cursor, substitute: Substitute | None, statement: str | None = None) -> dict[str, str]:
    """`(k = v, …)` at the cursor. With `statement` only that statement's options are allowed; without, any are."""
    cursor.expect("(")
    out: dict[str, str] = {}
    while not cursor.accept(")"):
        if out:
            cursor.expect(",")
        where = cursor.here()
        key = _key(cursor)
        if key in out:
            raise cursor.fail("PSK-1010", f"option {key} is given twice", position=where)
        if statement is not None:
            _check_name(cursor, key, statement, where)
        cursor.expect("=")
        where = cursor.here()
        value = _value(cursor, substitute)
        if statement is not None and key in VALUES and value.lower() not in VALUES[key]:
            known = ", ".join(sorted(VALUES[key]))
            raise cursor.fail("PSK-1011", f"{key} cannot be '{value}'", hint=f"One of: {known}.", position=where)
        out[key] = value
    return out


def _check_name(cursor: Cursor, key: str, statement: str, where: Position) -> None:
    allowed = ALLOWED[statement]
    if key in allowed:
        return
    best = nearest(key, allowed)
    hint = f"Did you mean {best}?" if best else f"{statement} takes: {', '.join(sorted(allowed))}."
    raise cursor.fail("PSK-1010", f"unknown option {key} for {statement}", hint=hint, position=where)


def _key(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is not None and token.token_type is TokenType.STRING:
        key = cursor.next().text
        if not key:
            raise cursor.error("expected an option name")
        return key
    parts = [cursor.name("an option name")]
    while cursor.accept("."):
        parts.append(cursor.name("an option name"))
    return ".".join(parts).lower()


def _value(cursor: Cursor, substitute: Substitute | None) -> str:
    token = cursor.peek()
    if token is not None and token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
        where = cursor.here()
        text = cursor.next().text
        if substitute is None:
            return text
        try:
            return substitute(text)
        except Exception as error:
            if getattr(error, "code", None) and getattr(error, "position", None) is None:
                error.position, error.sql = where, cursor.script.text  # type: ignore[attr-defined]
            raise
    if cursor.accept("TRUE"):
        return "true"
    if cursor.accept("FALSE"):
        return "false"
    sign = "-" if cursor.accept("-") else ""
    token = cursor.peek()
    if token is not None and token.token_type is TokenType.NUMBER and _whole(cursor, token):
        cursor.next()
        return sign + token.text
    if is_name(token):
        raise cursor.error(
            "expected a quoted option value", hint="Write k = 'v'; numbers, true and false need no quotes."
        )
    raise cursor.error("expected an option value")


def _whole(cursor: Cursor, token: Token) -> bool:
    """A number with a type suffix (5s, 10L) is two tokens at one place: no plain number."""
    after = cursor.peek(1)
    return after is None or after.start > token.end
