"""ALTER and COMMENT ON."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from penstock.catalog.objects import Kind
from penstock.sql import statements as st
from penstock.sql.clauses import parse_query
from penstock.sql.ddl import object_name, parse_column, parse_kind
from penstock.sql.tokens import Cursor, Script


def parse_alter(cursor: Cursor, text: str, offset: int) -> st.Statement:
    kind = parse_kind(cursor)
    name = object_name(cursor)
    if cursor.accept("RENAME TO"):
        new = object_name(cursor, new=True)
        cursor.finish()
        return st.Rename(text, offset, kind.value, name, new)
    if kind is Kind.SOURCE:
        return _source(cursor, text, offset, name)
    if kind in (Kind.TABLE, Kind.LOOKUP):
        return _table(cursor, text, offset, kind, name)
    if kind not in (Kind.STREAM, Kind.VIEW):
        hint = f"Write ALTER {kind.value.upper()} {name} RENAME TO …; or create it again."
        raise cursor.fail("PSK-1012", f"only the name of a {kind.value} can be altered", hint=hint)
    cursor.expect("AS")
    query, rebuild = parse_query(cursor, kind.value.upper(), rebuild=True)
    return st.AlterQuery(text, offset, kind.value, name, query, rebuild)


def _source(cursor: Cursor, text: str, offset: int, name: str) -> st.Statement:
    if cursor.at("DROP") or cursor.at("RENAME"):
        raise cursor.fail(
            "PSK-1012",
            "columns of a source cannot be dropped or renamed, because its rows are history",
            hint="Create a stream that selects the columns, under the names that you want.",
        )
    cursor.expect("ADD")
    cursor.accept("COLUMN")
    column, is_key = parse_column(cursor)
    if is_key:
        raise cursor.fail("PSK-1012", "a source cannot have a key")
    if not column.nullable and column.default is None:
        raise cursor.fail(
            "PSK-1012", f"column {column.name} is NOT NULL without a DEFAULT: earlier rows have no value for it"
        )
    cursor.finish()
    return st.AlterSourceAddColumn(text, offset, name, column)


def _table(cursor: Cursor, text: str, offset: int, kind: Kind, name: str) -> st.Statement:
    if cursor.accept("ADD"):
        if cursor.at("COLUMNS (") or cursor.at("("):
            hint = "Write ALTER TABLE … ADD COLUMN c type for each of them."
            raise cursor.fail("PSK-1012", "columns are added one by one", hint=hint)
        cursor.accept("COLUMN")
        where = cursor.here()
        column, is_key = parse_column(cursor)
        if is_key:
            raise cursor.fail("PSK-1012", "a key cannot be added to a table", position=where)
        cursor.finish()
        return st.AlterTableColumn(text, offset, kind.value, name, add=column)
    if cursor.accept("DROP"):
        cursor.accept("COLUMN")
        dropped = cursor.name("a column name")
        cursor.finish()
        return st.AlterTableColumn(text, offset, kind.value, name, drop=dropped)
    if cursor.accept("RENAME"):
        cursor.accept("COLUMN")
        old = cursor.name("a column name")
        cursor.expect("TO")
        where = cursor.here()
        new = cursor.new_name("a column name")
        if new.startswith("__"):
            raise cursor.fail("PSK-1015", f"the column name {new} is reserved", position=where)
        cursor.finish()
        return st.AlterTableColumn(text, offset, kind.value, name, rename=(old, new))
    raise cursor.error("expected ADD COLUMN, DROP COLUMN, RENAME COLUMN or RENAME TO")


def parse_comment(cursor: Cursor, text: str, offset: int) -> st.Comment:
    cursor.expect("ON")
    kind, column = None, None
    if cursor.accept("COLUMN"):
        name = cursor.name()
        cursor.expect(".")
        column = cursor.name("a column name")
    else:
        kind = parse_kind(cursor).value
        name = object_name(cursor)
    cursor.expect("IS")
    token = cursor.peek()
    if cursor.accept("NULL"):
        comment = None
    elif token is not None and token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
        comment = cursor.next().text or None
    else:
        raise cursor.error("expected a string or NULL")
    cursor.finish()
    return st.Comment(text, offset, kind, name, column, comment)


def with_name(statement: str, name: str) -> str:
    """A stored CREATE statement with another name."""
    script = Script(statement)
    cursor = Cursor(script, script.tokenize())
    cursor.expect("CREATE")
    cursor.accept("OR REPLACE")
    parse_kind(cursor)
    cursor.accept("IF NOT EXISTS")
    token = cursor.next()
    return f"{statement[: token.start]}{quoted(name)}{statement[token.end + 1 :]}"


def quoted(name: str) -> str:
    """A name as it can be written anywhere."""
    return "`" + name.replace("`", "``") + "`"
