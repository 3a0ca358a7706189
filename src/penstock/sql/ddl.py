"""CREATE, DROP and ALTER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from penstock.catalog.declared import contains
from penstock.catalog.objects import Column, Connector, Kind, Watermark
from penstock.errors import fail
from penstock.sql import intervals
from penstock.sql import statements as st
from penstock.sql.clauses import parse_query
from penstock.sql.foreign import OBJECTS
from penstock.sql.options import parse_connector_options, parse_options
from penstock.sql.parser import parse_expression, parse_select
from penstock.sql.query import ParsedQuery
from penstock.sql.sqlfunction import parse_function
from penstock.sql.tokens import Cursor, Script
from penstock.sql.types import parse_type

_KINDS = (
    ("MATERIALIZED VIEW", Kind.VIEW),
    ("VIEW", Kind.NAMED_QUERY),
    ("LOOKUP TABLE", Kind.LOOKUP),
    ("SOURCE", Kind.SOURCE),
    ("TABLE", Kind.TABLE),
    ("STREAM", Kind.STREAM),
    ("SINK", Kind.SINK),
    ("FUNCTION", Kind.FUNCTION),
)
_QUERIES = {Kind.STREAM: st.CreateStream, Kind.VIEW: st.CreateView, Kind.NAMED_QUERY: st.CreateNamedQuery}


def parse_kind(cursor: Cursor) -> Kind:
    for phrase, kind in _KINDS:
        if cursor.accept(phrase):
            return kind
    token = cursor.peek()
    hint = OBJECTS.get(token.text.upper()) if token is not None else None
    raise cursor.error("expected SOURCE, TABLE, LOOKUP TABLE, STREAM, MATERIALIZED VIEW, VIEW, SINK or FUNCTION", hint)


def parse_create(cursor: Cursor, text: str, offset: int) -> st.Statement:
    or_replace = cursor.accept("OR REPLACE")
    kind = parse_kind(cursor)
    if_not_exists = cursor.accept("IF NOT EXISTS")
    if or_replace and if_not_exists:
        raise cursor.error("OR REPLACE and IF NOT EXISTS cannot be combined")
    name = object_name(cursor, new=True)
    if kind in _QUERIES:
        columns = _column_list(cursor)
        cursor.expect("AS")
        query, _ = parse_query(cursor, kind.value.upper(), columns=columns)
        return _QUERIES[kind](text, offset, name, or_replace, if_not_exists, query=query)
    if kind is Kind.FUNCTION:
        return parse_function(cursor, text, offset, name, or_replace, if_not_exists)
    if kind is Kind.SINK:
        return _sink(cursor, text, offset, name, or_replace, if_not_exists)
    if cursor.at("AS"):
        hint = "CREATE MATERIALIZED VIEW … AS keeps the rows of a query; INSERT INTO … SELECT copies them into a table."
        raise cursor.error(f"a {kind.value} has no AS SELECT", hint)
    body = _body(cursor, kind)
    connector = parse_connector(cursor) if cursor.accept("FROM") else None
    if connector is None and cursor.at("FORMAT"):
        raise cursor.error("FORMAT needs FROM CONNECTOR (…) before it")
    where = cursor.here()
    options = parse_options(cursor, kind.value.upper()) if cursor.accept("WITH") else {}
    cursor.finish()
    if not body.columns and connector is None:
        raise cursor.error(f"expected the columns of {kind.value} {name}")
    if kind is Kind.SOURCE:
        return st.CreateSource(
            text, offset, name, or_replace, if_not_exists, tuple(body.columns), body.watermark, connector, options
        )
    if kind is Kind.TABLE:
        return st.CreateTable(
            text, offset, name, or_replace, if_not_exists, tuple(body.columns), body.key, connector, options
        )
    if "connector" in options:
        if connector is not None:
            raise cursor.fail("PSK-1010", "the connector is specified twice", position=where)
        connector = Connector(options.pop("connector").lower())
    if not body.key:
        raise cursor.fail("PSK-5006", f"lookup table {name} needs a key", hint="Add PRIMARY KEY (…).", position=where)
    return st.CreateLookupTable(
        text, offset, name, or_replace, if_not_exists, tuple(body.columns), body.key, connector, options
    )


def _column_list(cursor: Cursor) -> tuple[exp.Identifier, ...]:
    """`(a, b)` before AS: the names of the output columns. None if there is no list."""
    if not cursor.accept("("):
        return ()
    out = []
    while True:
        token = cursor.peek()
        node = exp.Identifier(this=cursor.new_name("a column name"), quoted=False)
        assert token is not None
        node.meta.update(start=token.start, end=token.end)
        out.append(node)
        if not cursor.accept(","):
            cursor.expect(")")
            return tuple(out)


def object_name(cursor: Cursor, *, new: bool = False) -> str:
    where = cursor.here()
    name = cursor.new_name() if new else cursor.name()
    if cursor.at("."):
        raise cursor.error("names have one part", hint="There are no schemas: write the name alone.")
    if name.startswith("__"):
        raise cursor.fail("PSK-1015", f"the name {name} is reserved", position=where)
    return name


@dataclass
class _Body:
    columns: list[Column] = field(default_factory=list)
    key: tuple[str, ...] = ()
    watermark: Watermark | None = None


def _body(cursor: Cursor, kind: Kind) -> _Body:
    body = _Body()
    if not cursor.accept("("):
        return body
    key_given = False
    while True:
        where = cursor.here()
        if cursor.accept("PRIMARY KEY ("):
            if key_given:
                raise cursor.fail("PSK-5006", "the primary key is declared twice", position=where)
            key_given, body.key = True, _names(cursor)
        elif cursor.at("WATERMARK FOR"):
            if kind is not Kind.SOURCE:
                raise cursor.fail("PSK-1012", "only a source can have a watermark")
            if body.watermark is not None:
                raise cursor.fail("PSK-2001", "the watermark is declared twice")
            cursor.accept("WATERMARK FOR")
            body.watermark = _watermark(cursor)
        else:
            column, is_key = parse_column(cursor)
            if any(c.name.lower() == column.name.lower() for c in body.columns):
                raise cursor.fail("PSK-1014", f"column {column.name} is declared twice", position=where)
            body.columns.append(column)
            if is_key:
                if key_given:
                    raise cursor.fail(
                        "PSK-5006",
                        "the primary key is declared twice",
                        hint="Write PRIMARY KEY (a, b).",
                        position=where,
                    )
                key_given, body.key = True, (column.name,)
        if not cursor.accept(","):
            break
    end = cursor.here()
    cursor.expect(")")
    if key_given and kind is Kind.SOURCE:
        raise cursor.fail(
            "PSK-1012",
            "a source is append-only and cannot have a key",
            hint="Use CREATE TABLE for keyed rows.",
            position=end,
        )
    _resolve(cursor, body)
    return body


def _resolve(cursor: Cursor, body: _Body) -> None:
    by_name = {c.name.lower(): i for i, c in enumerate(body.columns)}
    key = []
    for name in body.key:
        i = by_name.get(name.lower())
        if i is None:
            raise cursor.fail("PSK-1004", f"the key column {name} is not declared")
        column = body.columns[i]
        if column.name in key:
            raise cursor.fail("PSK-1014", f"the key names {column.name} twice")
        if contains(column.type, "map", "variant"):
            raise cursor.fail("PSK-2011", f"the key column {column.name} is {column.type}")
        key.append(column.name)
        body.columns[i] = Column(column.name, column.type, False, column.default)
    body.key = tuple(key)
    if body.watermark is not None:
        i = by_name.get(body.watermark.column.lower())
        if i is None:
            if body.columns:
                raise cursor.fail("PSK-1004", f"the watermark column {body.watermark.column} is not declared")
            return
        column = body.columns[i]
        if column.type not in ("timestamp", "bigint"):
            raise cursor.fail("PSK-2002", f"{column.name} is {column.type}")
        body.watermark = Watermark(column.name, body.watermark.delay_ms, body.watermark.proctime)


def _names(cursor: Cursor) -> tuple[str, ...]:
    """Parses `a, b)`: names up to the closing parenthesis."""
    names = [cursor.name("a column name")]
    while cursor.accept(","):
        names.append(cursor.name("a column name"))
    cursor.expect(")")
    return tuple(names)


def parse_column(cursor: Cursor) -> tuple[Column, bool]:
    where = cursor.here()
    name = cursor.new_name("a column name")
    if name.startswith("__"):
        raise cursor.fail("PSK-1015", f"the column name {name} is reserved", position=where)
    type_ = parse_type(cursor)
    nullable, default, key = True, None, False
    while True:
        if cursor.accept("NOT NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            pass
        elif cursor.accept("PRIMARY KEY"):
            key = True
        elif default is None and cursor.accept("DEFAULT"):
            default = _default(cursor)
        else:
            return Column(name, type_, nullable, default), key


def _default(cursor: Cursor) -> str:
    start, depth = cursor.index, 0
    while (token := cursor.peek()) is not None:
        if depth == 0 and (token.token_type is TokenType.COMMA or token.token_type is TokenType.R_PAREN):
            break
        if depth == 0 and cursor.index > start and (cursor.at("NOT NULL") or cursor.at("PRIMARY KEY")):
            break
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        cursor.next()
    tokens = cursor.tokens[start : cursor.index]
    constant(cursor.script, tokens)
    # As it was written, so that Spark reads what its author wrote.
    return cursor.script.text[tokens[0].start : tokens[-1].end + 1]


def parse_columns(text: str) -> tuple[Column, ...]:
    """Parses `a INT, b STRING NOT NULL`, the schema of files. A position is one in `text`."""
    script = Script(text)
    cursor = Cursor(script, script.tokenize())
    out: list[Column] = []
    while True:
        where = cursor.here()
        column, is_key = parse_column(cursor)
        if is_key or column.default is not None:
            raise cursor.fail("PSK-1012", "a column of a file has no key and no default", position=where)
        if any(c.name.lower() == column.name.lower() for c in out):
            raise cursor.fail("PSK-1014", f"column {column.name} is declared twice", position=where)
        out.append(column)
        if not cursor.accept(","):
            cursor.finish()
            return tuple(out)


def constant(script: Script, tokens: Sequence[Token]) -> exp.Expression:
    """Parses a DEFAULT expression. Raises PSK-1012 if it refers to columns or contains a query."""
    node = parse_expression(script, tokens, "a default value")
    if node.find(exp.Column, exp.Query) is not None:
        where = script.at(tokens[0])
        raise fail("PSK-1012", "a default cannot refer to columns", position=where, sql=script.shown)
    return node


def _watermark(cursor: Cursor) -> Watermark:
    where = cursor.here()
    column = cursor.name("a time column")
    if not cursor.accept("AS"):
        return Watermark(column)
    start, depth = cursor.index, 0
    while (token := cursor.peek()) is not None:
        if depth == 0 and token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            break
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        cursor.next()
    node = parse_expression(cursor.script, cursor.tokens[start : cursor.index], "a watermark expression")
    at = cursor.script.at(cursor.tokens[start])
    if isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME" and not node.expressions:
        return Watermark(column, proctime=True)
    if isinstance(node, exp.Column) and node.name.lower() == column.lower() and not node.table:
        return Watermark(column)
    if isinstance(node, exp.Sub) and isinstance(node.this, exp.Column) and not node.this.table:
        delay = intervals.from_node(node.expression)
        ms = intervals.millis(delay) if delay else None
        if node.this.name.lower() != column.lower():
            raise cursor.fail("PSK-2001", f"the watermark of {column} is computed from {node.this.name}", position=at)
        if ms is not None and ms >= 0:
            return Watermark(column, ms)
    raise cursor.fail(
        "PSK-2001", f"the watermark of {column} is not a constant delay of whole milliseconds", position=at or where
    )


def parse_connector(cursor: Cursor) -> Connector:
    """`NAME (options) [FORMAT f [(options)]]`."""
    name = cursor.name("a connector").lower()
    options = parse_connector_options(cursor) if cursor.at("(") else {}
    if not cursor.accept("FORMAT"):
        return Connector(name, options)
    fmt = cursor.name("a format").lower()
    format_options = parse_connector_options(cursor) if cursor.at("(") else {}
    return Connector(name, options, fmt, format_options)


def _sink(
    cursor: Cursor,
    text: str,
    offset: int,
    name: str,
    or_replace: bool,
    if_not_exists: bool,
) -> st.Statement:
    source: str | None = None
    query: ParsedQuery | None = None
    if cursor.accept("FROM"):
        start = cursor.index
        source = object_name(cursor)
        stop = start + 1
        if cursor.accept("WHERE"):
            stop = _find_into(cursor)
        query = rows_of_object(cursor, start, stop)
        cursor.index = stop
        cursor.expect("INTO")
        connector = parse_connector(cursor)
        options = parse_options(cursor, "SINK") if cursor.accept("WITH") else {}
        cursor.finish()
    else:
        cursor.expect("INTO")
        connector = parse_connector(cursor)
        cursor.expect("AS")
        query, _ = parse_query(cursor, "SINK")
        options = query.options
    return st.CreateSink(
        text, offset, name, or_replace, if_not_exists, connector=connector, source=source, query=query, options=options
    )


def _find_into(cursor: Cursor) -> int:
    depth = 0
    for i in range(cursor.index, cursor.end):
        token = cursor.tokens[i]
        if depth == 0 and token.token_type is not TokenType.STRING and token.text.upper() == "INTO":
            return i
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
    cursor.index = cursor.end
    raise cursor.error("expected INTO")


def rows_of_object(cursor: Cursor, start: int, stop: int) -> ParsedQuery:
    """Builds `SELECT * FROM source [WHERE …]` from the tokens `source [WHERE …]`."""
    tokens = cursor.tokens[start:stop]
    at = tokens[0]
    words = ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM"))
    head = [type(at)(kind, word, at.line, at.col, at.start, at.end, []) for kind, word in words]
    ast, probes = parse_select(cursor.script, [*head, *tokens])
    text = cursor.script.text[at.start : tokens[-1].end + 1]
    return ParsedQuery(cursor.script, ast, f"SELECT * FROM {text}", at.start, probes)


def parse_drop(cursor: Cursor, text: str, offset: int) -> st.Statement:
    kind = parse_kind(cursor)
    if_exists = cursor.accept("IF EXISTS")
    name = object_name(cursor)
    cascade = cursor.accept("CASCADE")
    cursor.finish()
    return st.Drop(text, offset, kind.value, name, if_exists, cascade)
