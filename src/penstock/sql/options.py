"""WITH (…) options: the options of each statement, and the parser for option lists."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokens import Token, TokenType

from penstock.config.secrets import has_clear_secret, is_secret
from penstock.errors import PenstockError, Position
from penstock.sql.names import nearest
from penstock.sql.tokens import Cursor, is_name

ALLOWED: dict[str, frozenset[str]] = {
    "SOURCE": frozenset(
        {
            "max_future_skew",
            "idle_timeout",
            "retain_history",
            "watermark_per",
            "watermark_group",
            "max_drift",
            "on_drift",
            "max_pending_rows",
            "max_pending_bytes",
            "on_full",
        }
    ),
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
    "STREAM": frozenset(
        {
            "retain_history",
            "state_ttl",
            "max_state_bytes",
            "max_operator_state_bytes",
            "unbounded_state",
            "asof",
            "max_depth",
            "on_error",
        }
    ),
    "MATERIALIZED VIEW": frozenset(
        {
            "retain_history",
            "state_ttl",
            "max_state_bytes",
            "max_operator_state_bytes",
            "unbounded_state",
            "asof",
            "max_depth",
            "on_error",
        }
    ),
    "SINK": frozenset(
        {
            "state_ttl",
            "max_state_bytes",
            "max_operator_state_bytes",
            "unbounded_state",
            "asof",
            "max_depth",
            "guarantee",
            "write_timeout",
        }
    ),
    "SUBSCRIBE": frozenset({"snapshot", "progress", "envelope", "policy", "buffer_bytes", "buffer_messages", "name"}),
    "SELECT": frozenset({"stale"}),
    "RESTORE": frozenset({"backup", "delivered"}),
}
VALUES: dict[str, frozenset[str]] = {
    "unbounded_state": frozenset({"true", "false"}),
    "asof": frozenset({"eager", "watermark"}),
    "on_error": frozenset({"fail", "dead_letter"}),
    "guarantee": frozenset({"auto", "at-least-once", "exactly-once"}),
    "on_drift": frozenset({"pause", "reject", "warn"}),
    "on_full": frozenset({"block", "reject", "drop_oldest"}),
    "strategy": frozenset({"replicated", "on-demand"}),
    "snapshot": frozenset({"true", "false"}),
    "stale": frozenset({"true", "false"}),
    "backup": frozenset({"true", "false"}),
    "delivered": frozenset({"undo", "keep"}),
    "progress": frozenset({"true", "false"}),
    "envelope": frozenset({"diff", "upsert", "debezium"}),
    "policy": frozenset({"block", "coalesce", "latest", "resync", "disconnect"}),
}


def parse_options(cursor: Cursor, statement: str) -> dict[str, str]:
    """Parses `(k = v, …)`, the options of a statement, and substitutes their variables."""
    substitute = cursor.script.reading.substitute

    def check(key: str, where: Position) -> None:
        _check_name(cursor, key, statement, where)

    def value(key: str, text: str, where: Position) -> str:
        made = _substituted(cursor, text, where) if substitute is not None else text
        if key in VALUES and made.lower() not in VALUES[key]:
            known = ", ".join(sorted(VALUES[key]))
            raise cursor.fail("PSK-1011", f"{key} cannot be '{made}'", hint=f"One of: {known}.", position=where)
        return made

    return _pairs(cursor, check, value)


def parse_connector_options(cursor: Cursor) -> dict[str, str]:
    """Parses `(k = v, …)`, the options of a connector. Any name is accepted. `Reading.connectors` decides whether variables are substituted.

    A secret must be written as `${NAME}`, because the statement is stored and shown.
    """
    reading = cursor.script.reading

    def value(key: str, text: str, where: Position) -> str:
        if reading.connectors == "keep":
            return text
        if has_clear_secret(key, text):
            what = f"option {key}" if is_secret(key) else f"a secret in option {key}"
            raise cursor.fail(
                "PSK-1011",
                f"{what} is in clear text, and statements are stored and shown",
                hint="Write it as ${NAME}: the value then comes from the setting variables.NAME or from the environment.",
                position=where,
            )
        if reading.substitute is None:
            return text
        made = _substituted(cursor, text, where)
        return made if reading.connectors == "resolve" else text

    return _pairs(cursor, lambda key, where: None, value)


def _pairs(
    cursor: Cursor, check: Callable[[str, Position], None], value: Callable[[str, str, Position], str]
) -> dict[str, str]:
    cursor.expect("(")
    out: dict[str, str] = {}
    while not cursor.accept(")"):
        if out:
            cursor.expect(",")
        where = cursor.here()
        key = _key(cursor)
        if key in out:
            raise cursor.fail("PSK-1010", f"option {key} is specified twice", position=where)
        check(key, where)
        cursor.expect("=")
        where = cursor.here()
        out[key] = value(key, _value(cursor), where)
    return out


def _substituted(cursor: Cursor, text: str, where: Position) -> str:
    substitute = cursor.script.reading.substitute
    assert substitute is not None
    try:
        return substitute(text)
    except PenstockError as error:
        if error.position is None:
            error.position, error.sql = where, cursor.script.shown
        raise


def _check_name(cursor: Cursor, key: str, statement: str, where: Position) -> None:
    allowed = ALLOWED[statement]
    if key in allowed:
        return
    best = nearest(key, allowed)
    hint = f"Did you mean {best}?" if best else f"{statement} accepts: {', '.join(sorted(allowed))}."
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


def _value(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is not None and token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
        return cursor.next().text
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
    """False for a number with a type suffix (5s, 10L), which is two adjacent tokens."""
    after = cursor.peek(1)
    return after is None or after.start > token.end
