"""CREATE FUNCTION: an expression with parameters."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from penstock.catalog.objects import Column
from penstock.sql import statements as st
from penstock.sql.parser import parse_expression, parse_select
from penstock.sql.tokens import Cursor
from penstock.sql.types import parse_type


def _text(cursor: Cursor) -> str:
    token = cursor.next()
    if token is None or token.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
        raise cursor.error("expected a string")
    return token.text


def _table(cursor: Cursor) -> tuple[Column, ...]:
    """`(a INT, b STRING)` after TABLE; empty if the columns are those of the query."""
    from penstock.sql.ddl import parse_column

    columns: list[Column] = []
    if not cursor.accept("("):
        return ()
    while not columns or cursor.accept(","):
        where = cursor.here()
        column, is_key = parse_column(cursor)
        if is_key or not column.nullable or column.default is not None:
            raise cursor.fail("PSK-1012", "a column of a result has a name and a type only", position=where)
        if any(c.name.lower() == column.name.lower() for c in columns):
            raise cursor.fail("PSK-1014", f"column {column.name} is declared twice", position=where)
        columns.append(column)
    cursor.expect(")")
    return tuple(columns)


def parse_function(
    cursor: Cursor, text: str, offset: int, name: str, or_replace: bool, if_not_exists: bool
) -> st.CreateFunction:
    """Parses `(x INT [DEFAULT e], …) [RETURNS type | TABLE [(columns)]] [LANGUAGE SQL] [COMMENT 'text'] RETURN e | query`, Spark's grammar."""
    from penstock.sql.ddl import parse_column

    cursor.expect("(")
    parameters: list[Column] = []
    while not cursor.accept(")"):
        if parameters:
            cursor.expect(",")
        where = cursor.here()
        column, is_key = parse_column(cursor)
        if is_key or not column.nullable:
            raise cursor.fail("PSK-1012", "a parameter has no key and no NOT NULL", position=where)
        if any(c.name.lower() == column.name.lower() for c in parameters):
            raise cursor.fail("PSK-1014", f"parameter {column.name} is declared twice", position=where)
        if column.default is None and parameters and parameters[-1].default is not None:
            raise cursor.fail(
                "PSK-1012", f"parameter {column.name} needs a default: the one before it has", position=where
            )
        parameters.append(column)
    returns, table, comment = None, None, None
    while not cursor.accept("RETURN"):
        if table is None and returns is None and cursor.accept("RETURNS"):
            if cursor.accept("TABLE"):
                table = _table(cursor)
            else:
                returns = parse_type(cursor)
        elif comment is None and cursor.accept("COMMENT"):
            comment = _text(cursor)
        elif not (cursor.accept("LANGUAGE SQL") or cursor.accept("CONTAINS SQL") or cursor.accept("DETERMINISTIC")):
            raise cursor.error("expected RETURNS, LANGUAGE SQL, COMMENT or RETURN")
    if table is not None:
        query, probes = parse_select(cursor.script, cursor.tokens[cursor.index : cursor.end])
        if probes:
            raise cursor.fail(
                "PSK-1012", "a function has no probe join", position=cursor.here(), hint="Read a view that has it."
            )
        return st.CreateFunction(
            text, offset, name, or_replace, if_not_exists,
            parameters=tuple(parameters), returns=None, table=table, body=query, comment=comment,
        )  # fmt: skip
    where = cursor.here()
    body = parse_expression(cursor.script, cursor.tokens[cursor.index : cursor.end], "the result of a function")
    if body.find(exp.Query) is not None:
        raise cursor.fail(
            "PSK-1012", "an expression of a function cannot read tables", position=where,
            hint="Write RETURNS TABLE, and call the function in FROM.",
        )  # fmt: skip
    return st.CreateFunction(
        text, offset, name, or_replace, if_not_exists,
        parameters=tuple(parameters), returns=returns, table=None, body=body, comment=comment,
    )  # fmt: skip
