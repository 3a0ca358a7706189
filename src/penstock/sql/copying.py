"""COPY name [(columns)] FROM 'path' [(options)], COPY name | (select) TO 'path' [(options)]."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from penstock.sql import statements as st
from penstock.sql.clauses import parse_query
from penstock.sql.ddl import object_name, rows_of_object
from penstock.sql.dml import column_list
from penstock.sql.files import parse_file_options
from penstock.sql.tokens import Cursor


def parse_copy(cursor: Cursor, text: str, offset: int) -> st.Statement:
    if cursor.at("("):
        close = cursor.closing(cursor.index)
        inner = Cursor(cursor.script, cursor.tokens, close)
        inner.index = cursor.index + 1
        query, _ = parse_query(inner, "SELECT")
        cursor.index = close + 1
        cursor.expect("TO")
        return _to(cursor, st.CopyTo(text, offset, query))
    start = cursor.index
    target = object_name(cursor)
    if cursor.accept("TO"):
        return _to(cursor, st.CopyTo(text, offset, rows_of_object(cursor, start, start + 1)))
    columns: tuple[str, ...] | None = None
    if cursor.accept("("):
        columns = column_list(cursor)
        if cursor.at("TO"):
            raise cursor.error("expected FROM", hint=f"Write COPY (SELECT {', '.join(columns)} FROM {target}) TO ….")
    if not cursor.accept("FROM"):
        raise cursor.error("expected FROM or TO", hint="Write COPY t FROM 'file.csv', or COPY t TO 'file.parquet'.")
    position = cursor.here()
    path = _path(cursor)
    options = parse_file_options(cursor, loading=True)
    cursor.finish()
    return st.CopyFrom(text, offset, target, columns, path, options, position)


def _to(cursor: Cursor, made: st.CopyTo) -> st.CopyTo:
    position = cursor.here()
    path = _path(cursor)
    options = parse_file_options(cursor, loading=False)
    cursor.finish()
    return st.CopyTo(made.text, made.offset, made.query, path, options, position)


def _path(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is None or token.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
        raise cursor.error("expected a path", hint="Write it as a string: 'folder/file.csv'.")
    return cursor.next().text
