"""Parsing and binding any text ends in a statement or in a printable error with a code."""

from __future__ import annotations

import datetime as dt
import decimal

from hypothesis import example, given, settings
from hypothesis import strategies as strategies
from sqlglot import exp
from tests.effort import times
from tests.unit.sql.conftest import DDL, Catalog

from penstock.errors import PenstockError
from penstock.sql import statements as st
from penstock.sql.bind import bind, bind_batch
from penstock.sql.params import apply_params
from penstock.sql.script import parse_condition, parse_constant, parse_script

CATALOG = Catalog(DDL)
SPELLED = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET UNION ALL EXCEPT INTERSECT JOIN LEFT FULL CROSS LATERAL ON
USING AS WITH RECURSIVE IN EXISTS NOT NULL AND OR BETWEEN LIKE CASE WHEN THEN ELSE END CAST INTERVAL DISTINCT OVER
PARTITION ROWS RANGE FILTER QUALIFY VALUES INSERT INTO UPDATE SET DELETE CREATE TABLE SOURCE LOOKUP STREAM
MATERIALIZED VIEW SINK DROP ALTER ADD COLUMN PRIMARY KEY DEFAULT WATERMARK FOR EMIT CHANGES CLOSE WINDOW EVERY ALLOW
LATENESS LATE DATA TO SUBSCRIBE EPOCH UP DECLARE CURSOR FETCH EXPLAIN ANALYZE SHOW DESCRIBE FORMAT CONNECTOR TUMBLE
HOP SESSION CUMULATE DESCRIPTOR ASOF MATCH_CONDITION TEMPORAL PROBE LIST SYSTEM_TIME OF TRANSFORM reflect IDENTIFIER
explode unnest count sum max coalesce array map struct s t d k v id ts minutes x INT BIGINT STRING ARRAY MAP STRUCT
DECIMAL TIMESTAMP DATE CHECKPOINT RESTORE BEGIN COMMIT ROLLBACK START PIPELINE FLUSH REFRESH IF OR REPLACE CASCADE
TRUE FALSE
"""
WORDS = SPELLED.split()
MARKS = ["(", ")", "[", "]", "{", "}", ",", ".", ";", "=", "<", ">", "<=>", "+", "-", "*", "/", "%", "||", "|>", "->", "::", "?", ":", "@", "$", "${", "!", "~", "&", "^", "#", "\\", "'", '"', "`", "--", "/*", "*/", "/*+", "\n", "\0", "\u2028", "é", "😀", "\ud800"]  # fmt: skip
VALUES = ["1", "1.5", "1e400", "9" * 50, "'a'", "''", "'it''s'", "r'x'", "X'ff'", "`a b`", "``", "'5' SECOND", "INTERVAL '1' DAY", "TIMESTAMP'10000-01-01'", "1BD", "5L", "5s"]  # fmt: skip
soup = strategies.lists(strategies.sampled_from([*WORDS, *MARKS, *VALUES]), max_size=25).map(" ".join)
VALID = [
    "SELECT k, sum(v) AS n FROM s WHERE v > 1 GROUP BY k HAVING count(*) > 1 ORDER BY n DESC LIMIT 5",
    "CREATE MATERIALIZED VIEW o AS SELECT k, window_start, max(v) AS m FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE",
    "CREATE SOURCE o (a INT NOT NULL DEFAULT 1 + 1, b STRUCT<x: ARRAY<INT>>, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
    "FROM WEBSOCKET (url = 'ws://h', json.column.a = 'b.c') FORMAT JSON (on_error = 'skip') WITH (idle_timeout = '5 seconds')",
    "CREATE SINK o INTO FILES (path = 'x', format = 'csv') AS SELECT k FROM s WHERE v IN (SELECT id FROM t)",
    "SELECT s.k FROM s JOIN r ON s.k = r.k AND r.rts BETWEEN s.ts - INTERVAL '1' MINUTE AND s.ts + INTERVAL '1' MINUTE",
    "SELECT s.k, q.w FROM s LEFT ASOF JOIN r AS q MATCH_CONDITION (s.ts >= q.rts) ON s.k = q.k",
    "WITH RECURSIVE c AS (SELECT id FROM t UNION SELECT t.id + 1 FROM t JOIN c ON t.id = c.id) SELECT * FROM c",
    "INSERT INTO t (id, name) VALUES (1, 'a'), (2, CAST(NULL AS STRING))",
    "UPDATE t SET name = upper(name), price = price * 2 WHERE id IN (SELECT v FROM s)",
    "SUBSCRIBE t AS OF EPOCH 5 WHERE id > 1 WITH (snapshot = true, envelope = 'diff')",
    "SELECT row_number() OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM s QUALIFY n = 1",
]


@strategies.composite
def damaged(draw: strategies.DrawFn) -> str:
    """A good statement with some of its characters lost, doubled, or replaced."""
    text = draw(strategies.sampled_from(VALID))
    for _ in range(draw(strategies.integers(1, 4))):
        at = draw(strategies.integers(0, len(text)))
        end = draw(strategies.integers(at, min(len(text), at + 12)))
        new = draw(
            strategies.one_of(
                strategies.just(""),
                strategies.sampled_from([*MARKS, *WORDS, *VALUES]),
                strategies.just(text[at:end] * 2),
            )
        )
        text = f"{text[:at]}{new}{text[end:]}"
    return text


def attempt(text: str) -> None:
    try:
        for statement in parse_script(text):
            inner = statement.statement if isinstance(statement, st.Explain) else statement
            query = getattr(inner, "query", None) or getattr(inner, "select", None)
            if query is None:
                continue
            if isinstance(inner, st.Select | st.Insert):
                bind_batch(query, CATALOG)
            else:
                bind(query, CATALOG)
    except PenstockError as error:
        error.render().encode()
        str(error).encode()


@settings(max_examples=times(80, quick=40))
@given(soup)
@example("SELECT `")
@example("SELECT 1 AS ``")
@example("CREATE TABLE `` (a INT)")
@example("CREATE TABLE t (`` INT)")
@example("CREATE TABLE `a\nb` (a INT)")
@example("CREATE TABLE `a``b` (a INT)")
@example("CREATE TABLE x (a STRUCT<``: INT>)")
@example("CREATE MATERIALIZED VIEW o AS SELECT ''")
@example("CREATE MATERIALIZED VIEW o AS SELECT k AS `a``b` FROM s")
def test_words(text: str) -> None:
    attempt(text)


@settings(max_examples=times(80, quick=40))
@given(damaged())
def test_damaged_statements(text: str) -> None:
    attempt(text)


@given(strategies.text(max_size=60) | soup)
def test_single_expressions(text: str) -> None:
    for read in (parse_condition, parse_constant):
        try:
            read(text).sql(dialect="spark")
        except PenstockError as error:
            error.render().encode()


@given(strategies.text(alphabet=strategies.characters(exclude_categories=["Cs"])))
def test_a_text_parameter_stays_one_text(value: str) -> None:
    """However it is written: it is one literal, with that value."""
    (statement,) = parse_script(apply_params("SELECT ? AS x, 1 AS y", [value]))
    assert isinstance(statement, st.Select)
    literal = statement.query.ast.expressions[0].this
    assert isinstance(literal, exp.Literal) and literal.is_string
    assert len(statement.query.ast.expressions) == 2
    (again,) = parse_script(statement.query.ast.sql(dialect="spark"))
    assert isinstance(again, st.Select)
    assert again.query.ast.expressions[0].this == literal


values = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text() | strategies.binary()
    | strategies.decimals() | strategies.datetimes() | strategies.dates() | strategies.times() | strategies.timedeltas()
    | strategies.just(object()),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(values)
@example(decimal.Decimal("sNaN"))
@example(dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5))))
def test_any_parameter(value: object) -> None:
    for sql, params in (("SELECT ? AS x", [value]), ("SELECT :p AS x", {"p": value})):
        try:
            attempt(apply_params(sql, params))
        except PenstockError as error:
            error.render()
