"""The clauses after a query: EMIT, ALLOW LATENESS, LATE DATA TO, ERRORS TO, WITH (…), REBUILD."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from penstock.errors import Position
from penstock.plan.nodes import Interval
from penstock.sql import intervals
from penstock.sql.options import parse_options
from penstock.sql.parser import EMIT_FORMS, parse_expression, parse_select
from penstock.sql.query import EmitClause, EmitKind, ParsedQuery
from penstock.sql.tokens import Cursor

_EMITS: tuple[tuple[str, EmitKind], ...] = (
    ("ON WINDOW CLOSE", "close"),
    ("AFTER WATERMARK", "close"),
    ("ON WATERMARK", "close"),
    ("FINAL", "final"),
    ("ON UPDATE", "update"),
    ("CHANGES", "changes"),
)


_DEAD_LETTERS = ("STREAM", "MATERIALIZED VIEW")
"""Statements that accept ERRORS TO, which redirects rows that could not be computed."""


def parse_query(
    cursor: Cursor, statement: str | None, *, columns: tuple[exp.Identifier, ...] = (), rebuild: bool = False
) -> tuple[ParsedQuery, bool]:
    """Parses the query from the cursor to its end, with its clauses. `statement` selects the allowed options; None: no clauses.
    `columns` are the names that the statement gives to the output.

    The second result is true if REBUILD is present (only allowed with `rebuild`).
    """
    start = cursor.index
    tail = _tail(cursor, rebuild)
    tokens = cursor.tokens[start:tail]
    ast, probes = parse_select(cursor.script, tokens)
    cursor.index = tail
    emit: EmitClause | None = None
    lateness: Interval | None = None
    late_to: str | None = None
    errors_to: str | None = None
    where: Position | None = None
    options: dict[str, str] | None = None
    rebuilt = False
    while not cursor.done:
        if statement in (None, "VIEW") or (statement == "SELECT" and not cursor.at("WITH (")):
            what = "materialized view" if statement == "VIEW" else "view"
            raise cursor.error(
                f"only a stream or a {what} can have this clause", hint="Use it in CREATE STREAM … AS SELECT …."
            )
        assert statement is not None
        at = cursor.peek()
        assert at is not None
        if emit is None and cursor.accept("EMIT"):
            emit = _emit(cursor, at.start)
        elif lateness is None and cursor.accept("ALLOW LATENESS"):
            lateness = parse_interval(cursor)
        elif late_to is None and cursor.accept("LATE DATA TO"):
            late_to = cursor.new_name("a stream name")
        elif errors_to is None and statement in _DEAD_LETTERS and cursor.accept("ERRORS TO"):
            errors_to = cursor.new_name("a stream name")
        elif options is None and cursor.accept("WITH"):
            where = cursor.here()
            options = parse_options(cursor, statement)
        elif rebuild and not rebuilt and cursor.accept("REBUILD"):
            rebuilt = True
        else:
            raise cursor.error("unexpected clause")
        if late_to is not None and errors_to is not None and late_to.lower() == errors_to.lower():
            raise cursor.fail(
                "PSK-1003", "late rows and errors cannot go to the same stream", position=cursor.script.at(at)
            )
    if options is not None and where is not None:
        _check_errors(cursor, errors_to, options.get("on_error", "").lower(), where)
    first, last = tokens[0], tokens[-1]
    text = cursor.script.text[first.start : last.end + 1]
    query = ParsedQuery(
        cursor.script,
        ast,
        text,
        first.start,
        probes,
        emit,
        lateness,
        late_to,
        errors_to,
        columns,
        presented=statement in ("MATERIALIZED VIEW", "VIEW"),
        options=options or {},
    )
    return query, rebuilt


def _check_errors(cursor: Cursor, errors_to: str | None, mode: str, where: Position) -> None:
    """Checks that the option on_error does not contradict ERRORS TO."""
    if mode == "dead_letter" and errors_to is None:
        raise cursor.fail(
            "PSK-1011",
            "on_error = 'dead_letter' needs ERRORS TO",
            hint="Write ERRORS TO name after the SELECT.",
            position=where,
        )
    if mode == "fail" and errors_to is not None:
        raise cursor.fail(
            "PSK-1011",
            "on_error = 'fail' contradicts ERRORS TO",
            hint="Remove the option or the clause.",
            position=where,
        )


def _tail(cursor: Cursor, rebuild: bool) -> int:
    """The index of the first Penstock clause at the outermost level."""
    at = Cursor(cursor.script, cursor.tokens, cursor.end)
    at.index = cursor.index
    depth = 0
    while not at.done:
        token = at.peek()
        assert token is not None
        if (
            depth == 0
            and at.index > cursor.index
            and at.tokens[at.index - 1].token_type not in (TokenType.DOT, TokenType.ALIAS)
        ):
            starts = any(at.at(f"EMIT {w}") for w in ("ON", "AFTER", "FINAL", "CHANGES", "EVERY"))
            if starts or any(at.at(w) for w in ("ALLOW LATENESS", "LATE DATA", "ERRORS TO", "WITH (")):
                return at.index
            if rebuild and at.at("REBUILD") and at.index == at.end - 1:
                return at.index
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        at.next()
    return at.index


def _emit(cursor: Cursor, offset: int) -> EmitClause:
    for phrase, kind in _EMITS:
        if cursor.accept(phrase):
            return EmitClause(kind, offset=offset)
    if cursor.accept("EVERY"):
        where = cursor.here()
        if not cursor.at("INTERVAL"):
            raise cursor.error("expected INTERVAL", hint="Write EMIT EVERY INTERVAL '10' SECOND.")
        every = parse_interval(cursor)
        if every.months or every.micros <= 0:
            raise cursor.fail(
                "PSK-2008", "EMIT EVERY needs a positive interval in days or smaller units", position=where
            )
        return EmitClause("every", every, offset)
    raise cursor.error(f"expected {EMIT_FORMS}")


def parse_interval(cursor: Cursor) -> Interval:
    """Parses `INTERVAL 'n' unit`."""
    where = cursor.here()
    start = cursor.index
    cursor.expect("INTERVAL")
    cursor.accept("-")
    number = cursor.next()
    while (token := cursor.peek()) is not None and token.start <= number.end:
        cursor.next()
    token = cursor.peek()
    if (
        token is not None
        and intervals.unit_of(token.text)
        and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    ):
        cursor.next()
        if cursor.accept("TO"):
            cursor.next()
    node: exp.Expression = parse_expression(cursor.script, cursor.tokens[start : cursor.index], "an interval")
    value = intervals.from_node(node)
    if value is None:
        raise cursor.fail("PSK-2008", "invalid interval", hint="Write INTERVAL '5' SECOND.", position=where)
    return value
