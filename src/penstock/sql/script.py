"""A script: statements separated by `;`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from penstock.sql import statements as st
from penstock.sql.altering import parse_alter, parse_comment
from penstock.sql.clauses import parse_query
from penstock.sql.copying import parse_copy
from penstock.sql.ddl import constant, object_name, parse_create, parse_drop, parse_kind
from penstock.sql.dml import parse_delete, parse_insert, parse_update
from penstock.sql.foreign import STATEMENTS
from penstock.sql.names import suggestion
from penstock.sql.options import parse_options
from penstock.sql.parser import parse_expression
from penstock.sql.policies import parse_create_policy, parse_drop_policy
from penstock.sql.tokens import Cursor, Reading, Script, Substitute, is_name, words_of

_SHOWN = (
    "SOURCES",
    "TABLES",
    "STREAMS",
    "VIEWS",
    "SINKS",
    "FUNCTIONS",
    "QUERIES",
    "CHECKPOINTS",
    "CONNECTORS",
    "LOG",
    "SUBSCRIPTIONS",
    "POLICIES",
    "COPIES",
)
_STARTS = [
    "CREATE",
    "DROP",
    "ALTER",
    "COMMENT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "COPY",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "REFRESH",
    "RESTART",
    "SELECT",
    "WITH",
    "VALUES",
    "SUBSCRIBE",
    "DECLARE",
    "FETCH",
    "CLOSE",
    "EXPLAIN",
    "SHOW",
    "DESCRIBE",
    "CHECKPOINT",
    "RESTORE",
    "SET",
    "START",
    "STOP",
    "FLUSH",
    "KILL",
]


def parse_script(
    text: str,
    *,
    substitute: Substitute | None = None,
    connectors: Literal["resolve", "check", "keep"] = "resolve",
    programs: bool = False,
) -> list[st.Statement]:
    """Parses all statements of a script, in the mode given by `Reading`. Raises PSK-1001 with the position in the whole script."""
    script = Script(text, Reading(substitute, connectors, programs))
    return [_statement(script, part) for part in split(script)]


def parse_constant(text: str, *, programs: bool = False) -> exp.Expression:
    """Parses a stored DEFAULT expression, with the same checks as a new declaration."""
    script = Script(text, Reading(programs=programs))
    return constant(script, script.tokenize())


def parse_condition(text: str, *, programs: bool = False) -> exp.Expression:
    """Parses a condition over the columns of one object, such as the WHERE of SUBSCRIBE."""
    script = Script(text, Reading(programs=programs))
    return parse_expression(script, script.tokenize(), "a condition")


def split(script: Script) -> list[list[Token]]:
    """The tokens of each non-empty statement."""
    parts: list[list[Token]] = [[]]
    for token in script.tokenize():
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return [p for p in parts if p]


def _statement(script: Script, tokens: Sequence[Token]) -> st.Statement:
    cursor = Cursor(script, tokens)
    offset = tokens[0].start
    text = script.text[offset : tokens[-1].end + 1]
    if cursor.accept("CREATE POLICY"):
        return parse_create_policy(cursor, text, offset)
    if cursor.accept("DROP POLICY"):
        return parse_drop_policy(cursor, text, offset)
    if cursor.accept("CREATE"):
        return parse_create(cursor, text, offset)
    if cursor.accept("DROP"):
        return parse_drop(cursor, text, offset)
    if cursor.accept("ALTER"):
        return parse_alter(cursor, text, offset)
    if cursor.accept("INSERT"):
        return parse_insert(cursor, text, offset)
    if cursor.accept("UPDATE"):
        return parse_update(cursor, text, offset)
    if cursor.accept("DELETE"):
        return parse_delete(cursor, text, offset)
    if cursor.accept("COMMENT"):
        return parse_comment(cursor, text, offset)
    if cursor.accept("COPY"):
        return parse_copy(cursor, text, offset)
    if (
        cursor.at("SELECT")
        or cursor.at("WITH")
        or cursor.at("VALUES")
        or cursor.at("(")
        or cursor.at("FROM")
        or cursor.at("TABLE")
    ):
        query, _ = parse_query(cursor, "SELECT")
        return st.Select(text, offset, query)
    if cursor.accept("SUBSCRIBE"):
        return _subscribe(cursor, text, offset)
    if cursor.accept("DECLARE"):
        return _declare(cursor, text, offset)
    if cursor.accept("EXPLAIN"):
        analyze = cursor.accept("ANALYZE")
        if cursor.done:
            raise cursor.error("expected a statement")
        if is_name(cursor.peek()) and cursor.peek(1) is None:
            return st.ExplainObject(text, offset, analyze, object_name(cursor))
        return st.Explain(text, offset, analyze, _statement(script, tokens[cursor.index :]))
    return _small(cursor, text, offset)


def _small(cursor: Cursor, text: str, offset: int) -> st.Statement:
    """Parses the short statements."""
    made: st.Statement
    if cursor.accept("BEGIN"):
        _ = cursor.accept("TRANSACTION") or cursor.accept("WORK")
        made = st.Begin(text, offset)
    elif cursor.accept("COMMIT"):
        _ = cursor.accept("TRANSACTION") or cursor.accept("WORK")
        made = st.Commit(text, offset)
    elif cursor.accept("ROLLBACK"):
        _ = cursor.accept("TRANSACTION") or cursor.accept("WORK")
        made = st.Rollback(text, offset)
    elif cursor.accept("FETCH"):
        count: int | None = 1
        if cursor.accept("ALL"):
            count = None
        elif not cursor.accept("NEXT") and not cursor.at("FROM"):
            count = cursor.integer()
        cursor.expect("FROM")
        made = st.Fetch(text, offset, cursor.name("a cursor"), count)
    elif cursor.accept("CLOSE"):
        made = st.CloseCursor(text, offset, cursor.name("a cursor"))
    elif cursor.accept("SHOW CREATE"):
        named = is_name(cursor.peek()) and cursor.peek(1) is None
        kind = None if named else parse_kind(cursor).value
        made = st.ShowCreate(text, offset, kind, object_name(cursor))
    elif cursor.accept("SHOW"):
        made = _show(cursor, text, offset)
    elif cursor.accept("DESCRIBE") or cursor.accept("DESC"):
        extended = cursor.peek(1) is not None and cursor.accept("EXTENDED")
        made = st.Describe(text, offset, extended, object_name(cursor))
    elif cursor.accept("CHECKPOINT"):
        made = st.Checkpoint(text, offset)
    elif cursor.accept("RESTORE"):
        cursor.expect("FROM CHECKPOINT")
        number = cursor.integer()
        options = parse_options(cursor, "RESTORE") if cursor.accept("WITH") else {}
        backup = options.get("backup", "true").lower() == "true"
        made = st.Restore(text, offset, number, backup, options.get("delivered", "undo").lower() == "keep")
    elif cursor.accept("SET"):
        made = _set(cursor, text, offset)
    elif cursor.accept("START PIPELINE"):
        made = st.StartPipeline(text, offset)
    elif cursor.accept("STOP PIPELINE"):
        made = st.StopPipeline(text, offset)
    elif cursor.accept("REFRESH"):
        cursor.expect("LOOKUP TABLE")
        made = st.Refresh(text, offset, object_name(cursor))
    elif cursor.accept("RESTART"):
        kind = parse_kind(cursor).value
        name = object_name(cursor)
        made = st.Restart(text, offset, kind, name, cursor.accept("FROM BEGINNING"))
    elif cursor.accept("FLUSH"):
        made = st.Flush(text, offset)
    elif cursor.accept("KILL"):
        cursor.expect("SUBSCRIPTION")
        made = st.KillSubscription(text, offset, cursor.integer())
    else:
        token = cursor.peek()
        word = " ".join(words_of(token)) if token is not None else ""
        hint = STATEMENTS.get(word) or (suggestion(word, _STARTS) if word else None)
        raise cursor.error(f"unknown statement {token.text if token else ''}".strip(), hint=hint)
    cursor.finish()
    return made


def _show(cursor: Cursor, text: str, offset: int) -> st.Statement:
    if cursor.accept("MATERIALIZED VIEWS"):
        return st.Show(text, offset, "views")
    for word in _SHOWN:
        if cursor.accept(word):
            return st.Show(text, offset, word.lower())
    token = cursor.peek()
    hint = suggestion(token.text, _SHOWN) if token is not None else None
    raise cursor.error(f"expected {', '.join(_SHOWN[:-1])} or {_SHOWN[-1]}", hint=hint)


def _set(cursor: Cursor, text: str, offset: int) -> st.Statement:
    parts = [cursor.name("a setting")]
    while cursor.accept("."):
        parts.append(cursor.name("a setting"))
    if not cursor.accept("="):
        cursor.expect("TO")
    first = cursor.peek()
    if first is None:
        raise cursor.error("expected a value")
    last = first
    while not cursor.done:
        last = cursor.next()
    quoted = first is last and first.token_type is TokenType.STRING
    value = first.text if quoted else cursor.script.text[first.start : last.end + 1]
    return st.SetOption(text, offset, ".".join(parts), value)


def _subscribe(cursor: Cursor, text: str, offset: int) -> st.Subscribe:
    cursor.accept("TO")
    target, select = None, None
    if cursor.at("("):
        close = cursor.closing(cursor.index)
        inner = Cursor(cursor.script, cursor.tokens, close)
        inner.index = cursor.index + 1
        # Options inside the parentheses (state_ttl …) belong to the query, those after them to the subscription.
        select, _ = parse_query(inner, "STREAM")
        cursor.index = close + 1
    else:
        target = object_name(cursor)
    others = []
    while target is not None and cursor.accept(","):
        others.append(object_name(cursor))
    as_of, as_of_lsn = _position(cursor) if cursor.accept("AS OF") else (None, None)
    up_to, up_to_lsn = _position(cursor) if cursor.accept("UP TO") else (None, None)
    where = None
    if cursor.accept("WHERE"):
        start = cursor.index
        while not cursor.done and not cursor.at("WITH ("):
            if cursor.at("("):
                cursor.index = cursor.closing(cursor.index)
            cursor.next()
        where = parse_expression(cursor.script, cursor.tokens[start : cursor.index], "a condition")
    options = parse_options(cursor, "SUBSCRIBE") if cursor.accept("WITH") else {}
    cursor.finish()
    return st.Subscribe(text, offset, target, select, as_of, up_to, where, options, as_of_lsn, up_to_lsn, tuple(others))


def _position(cursor: Cursor) -> tuple[int | None, int | None]:
    """EPOCH e or LSN n."""
    if cursor.accept("LSN"):
        return None, cursor.integer()
    cursor.expect("EPOCH")
    return cursor.integer(), None


def _declare(cursor: Cursor, text: str, offset: int) -> st.Statement:
    name = cursor.name("a cursor")
    cursor.expect("CURSOR FOR")
    start = cursor.peek()
    cursor.expect("SUBSCRIBE")
    assert start is not None
    inner = cursor.script.text[start.start : offset + len(text)]
    return st.DeclareCursor(text, offset, name, _subscribe(cursor, inner, start.start))
