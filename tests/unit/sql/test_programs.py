"""SQL cannot run programs, call Java or read files, however it is spelled."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from sqlglot import exp
from sqlglot.tokens import TokenType
from tests.unit.sql.conftest import DDL, Catalog

from penstock.errors import PenstockError
from penstock.sql import statements as st
from penstock.sql.bind import bind_batch
from penstock.sql.programs import FORBIDDEN
from penstock.sql.script import parse_script
from penstock.sql.tokens import Script

CATALOG = Catalog(DDL)
ENV = "('java.lang.System', 'getenv', 'HOME')"

CALLS = [
    f"reflect{ENV}",
    f"REFLECT {ENV}",
    f"Reflect /* so */ {ENV}",
    f"reflect -- so\n{ENV}",
    f"`reflect`{ENV}",
    f"`REFLECT` {ENV}",
    f"builtin.reflect{ENV}",
    f"system.builtin.reflect{ENV}",
    f"`system`.`builtin`.`reflect`{ENV}",
    f"system.builtin.`Reflect` {ENV}",
    f"session.reflect{ENV}",
    f"{{fn reflect{ENV}}}",
    f"(reflect{ENV})",
    f"upper(reflect{ENV})",
    f"CASE WHEN true THEN reflect{ENV} END",
    f"CAST(reflect{ENV} AS STRING)",
    f"concat('a', reflect{ENV})",
    f"transform(array('a'), x -> reflect{ENV})",
    f"reflect{ENV} OVER ()",
    f"max(reflect{ENV})",
    f"array(reflect{ENV})[0]",
    f"(SELECT reflect{ENV})",
    f"try_reflect{ENV}",
    f"java_method{ENV}",
    "current_user()",
    "current_user",
    "session_user()",
    "user()",
    "from_avro(X'00', '{}')",
    "to_avro(1)",
    "from_protobuf(X'00', 'm', '/etc/passwd')",
    "from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "from_xml('<a/>', 'a INT', map('ROWVALIDATIONXSDPATH', '/etc/passwd'))",
    "from_xml('<a/>', 'a INT', map(concat('rowValidation', 'XSDPath'), '/etc/passwd'))",
    "from_xml('<a/>', 'a INT', str_to_map('rowValidationXSDPath:/etc/passwd'))",
    "schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
    "to_xml(named_struct('a', 1), map_from_arrays(array('rowValidationXSDPath'), array('x')))",
]
EVERYWHERE = [
    "SELECT {}",
    "SELECT {} AS x FROM s",
    "SELECT k FROM s WHERE {} = 'x'",
    "SELECT k FROM s GROUP BY k, {}",
    "SELECT k, count(*) AS n FROM s GROUP BY k HAVING {} = 'x'",
    "SELECT k FROM s ORDER BY {} LIMIT 1",
    "SELECT s.k FROM s JOIN t ON s.v = t.id AND {} = 'x'",
    "WITH c AS (SELECT {} AS x) SELECT x FROM c",
    "SELECT k FROM s WHERE v IN (SELECT {} FROM t)",
    "VALUES ({})",
    "SELECT 1 AS a UNION ALL SELECT {}",
    "CREATE MATERIALIZED VIEW o AS SELECT {} AS x FROM s",
    "CREATE STREAM o AS SELECT {} AS x FROM s",
    "CREATE SINK o FROM s WHERE {} = 'x' INTO CONSOLE",
    "CREATE SINK o INTO CONSOLE AS SELECT {} AS x FROM s",
    "ALTER STREAM minutes AS SELECT {} AS x FROM s",
    "CREATE SOURCE o (a STRING DEFAULT {})",
    "INSERT INTO t VALUES (1, {}, 2)",
    "INSERT INTO t SELECT 1, {}, 2",
    "UPDATE t SET name = {}",
    "UPDATE t SET name = 'a' WHERE {} = 'x'",
    "DELETE FROM t WHERE {} = 'x'",
    "SUBSCRIBE t WHERE {} = 'x'",
    "SUBSCRIBE (SELECT {} AS x FROM s)",
    "DECLARE c CURSOR FOR SUBSCRIBE t WHERE {} = 'x'",
    "EXPLAIN SELECT {} AS x FROM s",
    "EXPLAIN ANALYZE CREATE STREAM o AS SELECT {} AS x FROM s",
]
QUERIES = [
    "SELECT TRANSFORM(k) USING 'id' FROM s",
    "SELECT transform(k) /* so */ using 'id' AS (a STRING) FROM s",
    'SELECT TRANSFORM(k) USING "id" FROM s',
    "SELECT TRANSFORM(k) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'id' FROM s",
    "FROM s SELECT TRANSFORM(k) USING 'id'",
    "SELECT k FROM s WHERE k IN (SELECT TRANSFORM(k) USING 'id' FROM s)",
    "WITH c AS (SELECT TRANSFORM(k) USING 'id' FROM s) SELECT * FROM c",
    f"SELECT * FROM s LATERAL VIEW reflect{ENV} AS x",
    f"SELECT * FROM reflect{ENV}",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM system.builtin.python_worker_logs()",
]


def refusal(sql: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        read(sql)
    return caught.value


def read(sql: str) -> None:
    (statement,) = parse_script(sql)
    if isinstance(statement, st.Select):
        bind_batch(statement.query, CATALOG)


@pytest.mark.parametrize("call", CALLS)
def test_calls_are_refused(call: str) -> None:
    error = refusal(f"SELECT {call}")
    assert error.code == "PSK-0012"
    assert error.position is not None
    assert "allow_programs" in str(error.hint)


@pytest.mark.parametrize("statement", EVERYWHERE)
def test_they_are_refused_in_every_place(statement: str) -> None:
    for call in (f"reflect{ENV}", f"system.builtin.`Reflect`{ENV}"):
        assert refusal(statement.format(call)).code == "PSK-0012"


@pytest.mark.parametrize("sql", QUERIES)
def test_programs_are_refused(sql: str) -> None:
    assert refusal(sql).code == "PSK-0012"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MAP k USING 'id' FROM s",
        "SELECT REDUCE k USING 'id' FROM s",
        "FROM s MAP k USING 'id'",
        "FROM s REDUCE k USING 'id' AS (a)",
        "FROM s INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT *",
        "SELECT IDENTIFIER('reflect')('a', 'b')",
        "SELECT IDENTIFIER('ref' || 'lect')('a', 'b')",
        "SELECT IDENTIFIER('k') FROM s",
        "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM spark_catalog.text.`/etc/passwd`",
        "SELECT k FROM s WHERE k IN (SELECT value FROM text.`/etc/passwd`)",
        "WITH c AS (SELECT * FROM csv.`/etc/passwd`) SELECT * FROM c",
        "UPDATE t SET name = (SELECT max(value) FROM text.`t`)",
        "UPDATE t SET name = 'a' WHERE name IN (SELECT value FROM text.`t`)",
        "DELETE FROM t WHERE name IN (SELECT value FROM text.`t`)",
        "DELETE FROM t WHERE name IN (SELECT value FROM IDENTIFIER('text.`t`'))",
        "SUBSCRIBE t WHERE name IN (SELECT value FROM text.`t`)",
        "WITH c AS (INSERT INTO t VALUES (1, 'a', 2)) SELECT 1",
        "SELECT @x",
        "SELECT ${env:HOME}",
        "UPDATE t SET name = ${env:HOME}",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "ADD JAR 'x.jar'",
        "CREATE FUNCTION f AS 'evil.Class' USING JAR 'x.jar'",
        "CREATE TEMPORARY VIEW v USING csv OPTIONS (path '/etc/passwd')",
        "SET spark.sql.variable.substitute",
        "CACHE TABLE t",
        "CALL p()",
    ],
)
def test_other_ways_out_are_refused(sql: str) -> None:
    error = refusal(sql)
    assert error.code in ("PSK-1001", "PSK-1002", "PSK-1012", "PSK-1013")
    assert error.position is not None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT transform(arr, x -> x + 1) AS y FROM s",
        "SELECT aggregate(arr, 0, (a, b) -> a + b) AS y FROM s",
        "SELECT from_xml('<a/>', 'a INT') AS y",
        "SELECT from_xml('<a/>', 'a INT', map('mode', 'PERMISSIVE')) AS y",
        "SELECT from_xml('<a/>', schema_of_xml('<a/>')) AS y",
        "SELECT from_json('{}', 'a INT', map('mode', 'PERMISSIVE')) AS y",
        "SELECT parse_url('http://h/p', 'HOST') AS y, url_decode('a') AS z",
        "SELECT k AS reflect, v AS `user` FROM s",
        "SELECT s.reflect FROM (SELECT k AS reflect FROM s) AS s",
    ],
)
def test_what_reaches_nothing_is_let_through(sql: str) -> None:
    read(sql)


@pytest.mark.parametrize("sql", [*(f"SELECT {c}" for c in CALLS), *QUERIES])
def test_the_setting_opens_them(sql: str) -> None:
    (statement,) = parse_script(sql, programs=True)
    assert isinstance(statement, st.Select)


def test_names_of_objects_are_free() -> None:
    parse_script("CREATE TABLE reflect (a INT PRIMARY KEY); INSERT INTO reflect (a) VALUES (1); SELECT a FROM reflect")


def test_no_call_is_written_as_a_forbidden_one() -> None:
    """The SQL library knows many functions by other names, and writes them in Spark's."""
    for kind in exp.ALL_FUNCTIONS:
        arguments = {k: exp.Literal.string("a") for k, wanted in kind.arg_types.items() if wanted}
        try:
            text = kind(**arguments).sql(dialect="spark")
            tokens = Script(f"SELECT {text}").tokenize()
        except Exception:
            continue
        written = {t.text.lower() for t, after in pairwise(tokens) if after.token_type is TokenType.L_PAREN}
        if written & set(FORBIDDEN):
            assert {n.lower() for n in kind.sql_names()} & set(FORBIDDEN), (kind, text)


def test_the_page_lists_them() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "security.md").read_text()
    assert [name for name in FORBIDDEN if f"`{name}`" not in page] == []
