"""INSERT, UPDATE and DELETE."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from penstock.sql import statements as st
from penstock.sql.clauses import parse_query
from penstock.sql.ddl import object_name
from penstock.sql.limits import check_written
from penstock.sql.parser import parse_expression, parse_select
from penstock.sql.tokens import Cursor
from penstock.sql.trees import bare


def column_list(cursor: Cursor) -> tuple[str, ...]:
    """`a, b)`: the columns that are written. Raises PSK-1014 if one is named twice."""
    names = [cursor.name("a column name")]
    while cursor.accept(","):
        names.append(cursor.name("a column name"))
    cursor.expect(")")
    if len({n.lower() for n in names}) < len(names):
        raise cursor.fail("PSK-1014", "a column is named twice")
    return tuple(names)


def parse_insert(cursor: Cursor, text: str, offset: int) -> st.Statement:
    cursor.expect("INTO")
    cursor.accept("TABLE")
    target = object_name(cursor)
    columns: tuple[str, ...] | None = None
    if cursor.at("(") and not cursor.at("( SELECT") and not cursor.at("( WITH") and not cursor.at("( VALUES"):
        cursor.next()
        columns = column_list(cursor)
    if cursor.done:
        raise cursor.error("expected VALUES or a query")
    if cursor.at("VALUES"):
        return st.Insert(text, offset, target, columns, _values(cursor, columns), None)
    query, _ = parse_query(cursor, None)
    return st.Insert(text, offset, target, columns, None, query)


def is_default(value: exp.Expr) -> bool:
    """Whether a value of INSERT or UPDATE is the word DEFAULT."""
    if isinstance(value, exp.Column):
        return not value.table and not value.this.quoted and value.name.upper() == "DEFAULT"
    return isinstance(value, exp.Var) and value.name.upper() == "DEFAULT"


def _values(cursor: Cursor, columns: tuple[str, ...] | None) -> tuple[tuple[exp.Expression, ...], ...]:
    start = cursor.index
    where = cursor.here()
    tree, _ = parse_select(cursor.script, cursor.tokens[start : cursor.end])
    if not isinstance(tree, exp.Values) or tree.args.get("alias"):
        raise cursor.error("expected VALUES (…), (…)")
    rows: list[tuple[exp.Expression, ...]] = []
    for row in tree.expressions:
        cells = tuple(row.expressions) if isinstance(row, exp.Tuple) else (bare(row),)
        rows.append(cells)
        wanted = len(columns) if columns is not None else len(rows[0])
        if len(cells) != wanted:
            raise cursor.fail("PSK-1016", f"row {len(rows)} has {len(cells)} values, expected {wanted}", position=where)
        for cell in cells:
            if is_default(cell):
                continue
            check_written(cursor.script, cell, where)
            if cell.find(exp.Column, exp.Query) is not None:
                raise cursor.fail("PSK-1012", f"row {len(rows)} has a value that is not constant", position=where)
    return tuple(rows)


def parse_update(cursor: Cursor, text: str, offset: int) -> st.Statement:
    target = object_name(cursor)
    cursor.expect("SET")
    assignments: list[tuple[str, exp.Expression]] = []
    while True:
        where = cursor.here()
        name = cursor.name("a column name")
        cursor.expect("=")
        value = _expression(cursor, "a value")
        if is_default(value):
            raise cursor.fail("PSK-1012", "UPDATE cannot set DEFAULT", position=where, hint="Write the value.")
        if any(name.lower() == n.lower() for n, _ in assignments):
            raise cursor.fail("PSK-1014", f"column {name} is set twice", position=where)
        assignments.append((name, value))
        if not cursor.accept(","):
            break
    condition = _where(cursor)
    return st.Update(text, offset, target, tuple(assignments), condition)


def parse_delete(cursor: Cursor, text: str, offset: int) -> st.Statement:
    cursor.expect("FROM")
    target = object_name(cursor)
    return st.Delete(text, offset, target, _where(cursor))


def _where(cursor: Cursor) -> exp.Expression | None:
    if cursor.done:
        return None
    cursor.expect("WHERE")
    return parse_expression(cursor.script, cursor.tokens[cursor.index : cursor.end], "a condition")


def _expression(cursor: Cursor, what: str) -> exp.Expression:
    """Parses up to a comma or WHERE at the outermost level."""
    start, depth = cursor.index, 0
    while (token := cursor.peek()) is not None and not (depth == 0 and _stops(token)):
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        cursor.next()
    return parse_expression(cursor.script, cursor.tokens[start : cursor.index], what)


def _stops(token: Token) -> bool:
    return token.token_type in (TokenType.COMMA, TokenType.WHERE)
