"""CREATE POLICY and DROP POLICY."""

from __future__ import annotations

from penstock.sql import statements as st
from penstock.sql.ddl import object_name
from penstock.sql.parser import parse_expression
from penstock.sql.tokens import Cursor


def parse_create_policy(cursor: Cursor, text: str, offset: int) -> st.CreatePolicy:
    """Parses `name ON object USING (condition)`."""
    name = object_name(cursor, new=True)
    cursor.expect("ON")
    target = object_name(cursor)
    cursor.expect("USING")
    if not cursor.at("("):
        raise cursor.error("expected a condition in parentheses")
    close = cursor.closing(cursor.index)
    using = parse_expression(cursor.script, cursor.tokens[cursor.index + 1 : close], "a condition")
    cursor.index = close + 1
    cursor.finish()
    return st.CreatePolicy(text, offset, name, target, using)


def parse_drop_policy(cursor: Cursor, text: str, offset: int) -> st.DropPolicy:
    """Parses `[IF EXISTS] name ON object`."""
    if_exists = cursor.accept("IF EXISTS")
    name = object_name(cursor)
    cursor.expect("ON")
    target = object_name(cursor)
    cursor.finish()
    return st.DropPolicy(text, offset, name, target, if_exists)
