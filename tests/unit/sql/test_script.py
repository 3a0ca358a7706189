"""Scripts: splitting, every statement, and what is refused while reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as strategies

from penstock.catalog.objects import Column, Connector, Watermark
from penstock.errors import PenstockError, fail
from penstock.plan.nodes import Interval
from penstock.sql import statements as st
from penstock.sql.script import parse_script


def one(sql: str) -> st.Statement:
    (statement,) = parse_script(sql)
    return statement


def refused(sql: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        parse_script(sql)
    return caught.value


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("CREATE SOURCE s (a INT)", st.CreateSource),
        ("create or replace source s (a int)", st.CreateSource),
        ("CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)", st.CreateTable),
        (
            "CREATE LOOKUP TABLE d (a INT, PRIMARY KEY (a)) FROM FILES (path = 'x') WITH (strategy = 'replicated')",
            st.CreateLookupTable,
        ),
        ("CREATE STREAM n AS SELECT a FROM s EMIT CHANGES", st.CreateStream),
        ("CREATE MATERIALIZED VIEW n AS SELECT a FROM s", st.CreateView),
        ("CREATE OR REPLACE VIEW n (a, `b c`) AS SELECT 1, 2", st.CreateNamedQuery),
        ("CREATE SINK k FROM n WHERE a > 1 INTO FILES (path = 'x') FORMAT json", st.CreateSink),
        ("CREATE SINK k INTO FILES (path = 'x') AS SELECT a FROM n", st.CreateSink),
        ("DROP MATERIALIZED VIEW IF EXISTS n CASCADE", st.Drop),
        ("ALTER STREAM n AS SELECT a FROM s REBUILD", st.AlterQuery),
        ("ALTER SOURCE s ADD COLUMN c DOUBLE", st.AlterSourceAddColumn),
        ("INSERT INTO t VALUES (1, 'a')", st.Insert),
        ("INSERT INTO t (a, b) SELECT a, b FROM s", st.Insert),
        ("UPDATE t SET a = a + 1, b = 'x' WHERE c = 1", st.Update),
        ("DELETE FROM t WHERE a = 1", st.Delete),
        ("BEGIN", st.Begin),
        ("COMMIT", st.Commit),
        ("ROLLBACK", st.Rollback),
        ("SELECT 1", st.Select),
        ("WITH a AS (SELECT 1 AS x) SELECT x FROM a", st.Select),
        ("SUBSCRIBE n AS OF EPOCH 3 UP TO EPOCH 5 WHERE a > 1 WITH (snapshot = true)", st.Subscribe),
        ("SUBSCRIBE (SELECT a FROM s)", st.Subscribe),
        ("DECLARE c CURSOR FOR SUBSCRIBE n", st.DeclareCursor),
        ("FETCH 10 FROM c", st.Fetch),
        ("CLOSE c", st.CloseCursor),
        ("EXPLAIN SELECT 1", st.Explain),
        ("EXPLAIN ANALYZE CREATE STREAM n AS SELECT a FROM s", st.Explain),
        ("SHOW SOURCES", st.Show),
        ("SHOW CREATE STREAM n", st.ShowCreate),
        ("DESCRIBE EXTENDED n", st.Describe),
        ("CHECKPOINT", st.Checkpoint),
        ("RESTORE FROM CHECKPOINT 7", st.Restore),
        ("SET a.b = '5'", st.SetOption),
        ("START PIPELINE", st.StartPipeline),
        ("STOP PIPELINE", st.StopPipeline),
        ("FLUSH", st.Flush),
    ],
)
def test_every_statement(sql: str, kind: type[st.Statement]) -> None:
    statement = one(f"  {sql} ;")
    assert type(statement) is kind
    assert statement.text == sql and statement.offset == 2


def test_statements_are_split_outside_strings_names_and_comments() -> None:
    script = "SHOW TABLES; -- a;b\nSELECT ';' AS `a;b`; /* ; */ FETCH ALL FROM c;; SHOW SINKS"
    assert [type(s).__name__ for s in parse_script(script)] == ["Show", "Select", "Fetch", "Show"]
    assert [s.text for s in parse_script(script)][1] == "SELECT ';' AS `a;b`"


def test_source() -> None:
    s = one(
        "CREATE SOURCE s (id INT NOT NULL DEFAULT 1 + 2, x ARRAY<STRUCT<a: TEXT, `b c` MAP<STRING, DECIMAL(10,2)>>>, ts TIMESTAMP, "
        "WATERMARK FOR TS AS ts - INTERVAL '1.5' SECOND) FROM WEBSOCKET (url = 'ws://${HOST}', 'json.column.a' = 'b.c') FORMAT JSON "
        "WITH (idle_timeout = '30 seconds')"
    )
    assert isinstance(s, st.CreateSource)
    assert s.columns[0] == Column("id", "int", False, "1 + 2")
    assert s.columns[1].type == "array<struct<a:string,`b c`:map<string,decimal(10,2)>>>"
    assert s.watermark == Watermark("ts", 1500)
    assert s.connector == Connector("websocket", {"url": "ws://${HOST}", "json.column.a": "b.c"}, "json")
    assert s.options == {"idle_timeout": "30 seconds"}


def test_option_values_are_substituted() -> None:
    (s,) = parse_script(
        "CREATE SOURCE s FROM X (a = '${A}', b = 5, c = true, d.e = -1)", substitute=lambda v: v.replace("${A}", "1")
    )
    assert isinstance(s, st.CreateSource) and s.connector is not None
    assert s.connector.options == {"a": "1", "b": "5", "c": "true", "d.e": "-1"}


def test_key_columns_are_not_null() -> None:
    s = one("CREATE TABLE t (A INT, b TEXT, PRIMARY KEY (b, a))")
    assert isinstance(s, st.CreateTable)
    assert s.key == ("b", "A") and [c.nullable for c in s.columns] == [False, False]


def test_clauses_of_a_stream() -> None:
    s = one(
        "CREATE STREAM n AS SELECT a FROM s ALLOW LATENESS INTERVAL '1' MINUTE LATE DATA TO x EMIT EVERY INTERVAL 10 SECONDS WITH ('state_ttl' = '1 h')"
    )
    assert isinstance(s, st.CreateStream)
    assert s.lateness == Interval(micros=60_000_000) and s.late_to == "x" and s.options == {"state_ttl": "1 h"}
    assert s.emit is not None and s.emit.kind == "every" and s.emit.every == Interval(micros=10_000_000)
    assert s.query.text == "SELECT a FROM s"


def test_words_of_clauses_are_still_names() -> None:
    s = one("CREATE STREAM n AS SELECT s.emit, late AS emit, errors FROM s errors")
    assert isinstance(s, st.CreateStream) and s.emit is None and s.errors_to is None


@pytest.mark.parametrize("kind", ["STREAM", "MATERIALIZED VIEW"])
def test_rows_that_fail_have_a_place(kind: str) -> None:
    for clauses in ("ERRORS TO bad", "ERRORS TO bad WITH (on_error = 'dead_letter')", "EMIT CHANGES ERRORS TO bad"):
        s = one(f"CREATE {kind} n AS SELECT a / b AS q FROM s {clauses}")
        assert isinstance(s, st.CreateStream | st.CreateView)
        assert s.errors_to == "bad" and s.query.text == "SELECT a / b AS q FROM s"
    s = one(f"CREATE {kind} n AS SELECT a FROM s WITH (on_error = 'fail')")
    assert isinstance(s, st.CreateStream | st.CreateView) and s.errors_to is None


@pytest.mark.parametrize(
    ("sql", "code", "line", "column", "hint"),
    [
        ("SELEC 1", "PSK-1001", 1, 1, "Did you mean SELECT?"),
        (
            "CREATE STREAM n AS SELECT a FROM s WITH (on_error = 'dead_letter')",
            "PSK-1011",
            1,
            41,
            "Write ERRORS TO name after the SELECT.",
        ),
        (
            "CREATE STREAM n AS SELECT a FROM s ERRORS TO e WITH (on_error = 'fail')",
            "PSK-1011",
            1,
            53,
            "Remove the option or the clause.",
        ),
        (
            "CREATE STREAM n AS SELECT a FROM s WITH (on_error = 'skip')",
            "PSK-1011",
            1,
            53,
            "One of: dead_letter, fail.",
        ),
        ("CREATE STREAM n AS SELECT a FROM s LATE DATA TO e ERRORS TO E", "PSK-1003", 1, 51, None),
        ("CREATE SINK n INTO CONSOLE AS SELECT a FROM s ERRORS TO e", "PSK-1001", 1, 47, None),
        ("SELECT a FROM s WHERE", "PSK-1001", 1, 17, None),
        ("SELECT a,, b FROM s", "PSK-1001", 1, 10, None),
        ("SELECT 1;\nSELECT 'abc", "PSK-1001", 2, 8, None),
        ("SELECT 1;\n CREATE STRAEM n AS SELECT 1", "PSK-1001", 2, 9, None),
        (
            "CREATE VIEW v AS SELECT 1 WITH (retain_history = '1mb')",
            "PSK-1001",
            1,
            27,
            "Use it in CREATE STREAM … AS SELECT ….",
        ),
        (
            "CREATE VIEW v (a, `b`, select) AS SELECT 1, 2, 3",
            "PSK-1015",
            1,
            24,
            "Write `select`, here and in queries, or choose another name.",
        ),
        ("CREATE SOURCE s (a INTT)", "PSK-1013", 1, 20, "Did you mean INT?"),
        ("CREATE SOURCE s (a VARCHAR(0))", "PSK-1013", 1, 20, None),
        ("CREATE SOURCE s (a INT, A INT)", "PSK-1014", 1, 25, None),
        ("CREATE SOURCE s (__a INT)", "PSK-1015", 1, 18, None),
        ("CREATE SOURCE s (ts DOUBLE, WATERMARK FOR ts)", "PSK-2002", 1, 46, None),
        ("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts AS ts + INTERVAL '1' SECOND)", "PSK-2001", 1, 49, None),
        ("CREATE SOURCE s (a INT, PRIMARY KEY (a))", "PSK-1012", 1, 40, "Use CREATE TABLE for keyed rows."),
        ("CREATE STREAM n AS SELECT 1 WITH (retain_histroy = '1')", "PSK-1010", 1, 35, "Did you mean retain_history?"),
        ("CREATE STREAM n AS SELECT 1 WITH (asof = 'never')", "PSK-1011", 1, 42, "One of: eager, watermark."),
        ("CREATE STREAM n AS SELECT 1 EMIT ON MONDAYS", "PSK-1001", 1, 34, None),
        ("SELECT 1 EMIT CHANGES", "PSK-1001", 1, 10, None),
        ("DROP STREAM", "PSK-1001", 1, 12, None),
        ("SHOW TABELS", "PSK-1001", 1, 6, "Did you mean TABLES?"),
        ("INSERT INTO t (a, b) VALUES (1)", "PSK-1016", 1, 22, None),
        ("INSERT INTO t VALUES (a)", "PSK-1012", 1, 15, None),
        ("CREATE STREAM n AS OPTIMIZE t", "PSK-1001", 1, 20, None),
        ("CREATE STREAM a.b AS SELECT 1", "PSK-1001", 1, 16, None),
    ],
)
def test_refused_while_reading(sql: str, code: str, line: int, column: int, hint: str | None) -> None:
    e = refused(sql)
    assert e.position is not None
    assert (e.code, e.position.line, e.position.column) == (code, line, column)
    assert e.render()
    if hint is not None:
        assert e.hint == hint


WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "LEFT",
    "ASOF",
    "TEMPORAL",
    "PROBE",
    "ON",
    "USING",
    "MATCH_CONDITION",
    "FOR",
    "SYSTEM_TIME",
    "AS",
    "OF",
    "WITH",
    "CREATE",
    "STREAM",
    "SOURCE",
    "TABLE",
    "SINK",
    "INTO",
    "VALUES",
    "INSERT",
    "UPDATE",
    "SET",
    "DELETE",
    "EMIT",
    "CHANGES",
    "EVERY",
    "INTERVAL",
    "'5'",
    "SECOND",
    "ALLOW",
    "LATENESS",
    "LATE",
    "DATA",
    "TO",
    "SUBSCRIBE",
    "EPOCH",
    "SHOW",
    "FETCH",
    "EXPLAIN",
    "TUMBLE",
    "HOP",
    "SESSION",
    "DESCRIPTOR",
    "LIST",
    "RANGE",
    "STEP",
    "STEP",
    "5s",
    "-1s",
    "a",
    "b",
    "s",
    "t",
    "ts",
    "k",
    "(",
    ")",
    ",",
    ".",
    ";",
    "=",
    "*",
    "+",
    "-",
    "<",
    ">",
    "1",
    "2.5",
    "'x'",
    "`q`",
    "sum",
    "count",
    "over",
    "partition",
    "case",
    "when",
    "then",
    "end",
    "null",
    "not",
    "and",
    "or",
    "in",
    "exists",
    "between",
    "unnest",
    "explode",
    "lateral",
    "view",
    "union",
    "all",
    "except",
    "distinct",
    "is",
]


@given(strategies.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_script(text)
    except PenstockError as e:
        e.render()


@given(strategies.lists(strategies.sampled_from(WORDS), max_size=25).map(" ".join))
def test_any_words_are_read_or_refused(text: str) -> None:
    try:
        for statement in parse_script(text):
            assert text[statement.offset :].startswith(statement.text)
    except PenstockError as e:
        e.render()


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ("password = 'hunter2'", "'hunter2'"),
        ("api_key = '${KEY:-abc}'", "'${KEY"),
        ("url = 'postgresql://u:pw@h/d'", "'postgresql"),
        ("a = 'b', url = 'wss://h/x?token=abc'", "'wss"),
    ],
)
def test_a_secret_that_is_written_out_is_refused(options: str, value: str) -> None:
    text = f"CREATE LOOKUP TABLE t (a INT PRIMARY KEY) FROM X ({options})"
    with pytest.raises(PenstockError) as caught:
        parse_script(text)
    error = caught.value
    assert error.code == "PSK-1011"
    assert "${NAME}" in str(error.hint)
    assert error.position is not None and error.position.column == text.index(value) + 1
    for secret in ("hunter2", "abc", "pw@"):
        assert secret not in error.render()
    (kept,) = parse_script(text, connectors="keep")
    assert isinstance(kept, st.CreateLookupTable)


def test_errors_show_no_secrets_of_other_statements() -> None:
    text = "CREATE SINK k FROM s INTO X (password = 'hunter2') FORMATT;"
    with pytest.raises(PenstockError) as caught:
        parse_script(text, connectors="keep")
    assert caught.value.code == "PSK-1001"
    assert "hunter2" not in caught.value.render()
    assert "password = '*******'" in caught.value.render()


def test_connectors_stay_as_written() -> None:
    asked: list[str] = []

    def known(text: str) -> str:
        asked.append(text)
        if "${GONE}" in text:
            raise fail("PSK-0003", "The variable 'GONE' has no value.")
        return text.replace("${A}", "1 second")

    sql = "CREATE SOURCE s (a TIMESTAMP) FROM X (a = '${A}') FORMAT f (b = '${A}') WITH (idle_timeout = '${A}')"
    (s,) = parse_script(sql, substitute=known, connectors="check")
    assert isinstance(s, st.CreateSource)
    assert s.connector == Connector("x", {"a": "${A}"}, "f", {"b": "${A}"})
    assert s.options == {"idle_timeout": "1 second"}
    assert asked == ["${A}"] * 3
    with pytest.raises(PenstockError) as caught:
        parse_script("CREATE SOURCE s (a INT) FROM X (a = '${GONE}')", substitute=known, connectors="check")
    assert caught.value.code == "PSK-0003"
    assert caught.value.position is not None and caught.value.position.column == 37
    (s,) = parse_script("CREATE SOURCE s (a INT) FROM X (a = '${GONE}')", substitute=known, connectors="keep")
    assert isinstance(s, st.CreateSource) and s.connector == Connector("x", {"a": "${GONE}"})
