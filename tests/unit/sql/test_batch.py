"""One-shot SELECT: Spark text, objects, and DuckDB text where both mean the same."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
import sqlglot
from tests.unit.sql.conftest import Catalog

from penstock.errors import PenstockError
from penstock.plan.nodes import Analytic, AsofJoin, Join
from penstock.sql.bind import BatchQuery, bind_batch
from penstock.sql.script import parse_script
from penstock.sql.statements import Select


def batch(catalog: Catalog, sql: str) -> BatchQuery:
    (statement,) = parse_script(sql)
    assert isinstance(statement, Select)
    return bind_batch(statement.query, catalog)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a', 1.5), (2, 'b', 0.5), (NULL, 'c', 2.0), (3, 'd', NULL)) v(id, name, price)"
        )
        made.execute("CREATE TABLE t2 (id BIGINT, x BIGINT)")
        yield made


def answer(db: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    return sorted(map(repr, db.execute(sql).fetchall()))


def test_names_are_resolved_and_quoted(catalog: Catalog) -> None:
    found = batch(catalog, "SELECT X.name, strpos(name, 'a') FROM T x JOIN s ON x.id = s.v")
    assert found.objects == ("t", "s")
    assert "FROM `t` AS x JOIN `s` AS `s`" in found.spark_sql
    assert "LOCATE('a', name) AS `strpos(name, a)`" in found.spark_sql
    assert found.duckdb_sql is None


@pytest.mark.parametrize(
    ("sql", "simple"),
    [
        ("SELECT * FROM t ORDER BY price DESC LIMIT 3", True),
        ("SELECT k, sum(v), avg(d), min(k), max(ts), count(*) FROM s WHERE v > 1 AND k IN ('a', 'b') GROUP BY k", True),
        ("SELECT v + 1, -v FROM s WHERE d BETWEEN 1 AND 2.5 AND NOT k IS NULL", True),
        ("SELECT v / 2 FROM s", False),
        ("SELECT k FROM s WHERE v = '1'", False),
        ("SELECT k FROM s WHERE ts > '2020-01-01'", False),
        ("SELECT upper(k) FROM s", False),
        ("SELECT k FROM s WHERE v IN (SELECT id FROM t)", False),
        ("SELECT a.k FROM s a JOIN s b ON a.k = b.k", False),
        ("WITH x AS (SELECT * FROM s) SELECT * FROM x", False),
        ("SELECT sum(v + 1) FROM s", False),
        ("SELECT DISTINCT k FROM s", False),
        ("SELECT 1", False),
    ],
)
def test_simple(catalog: Catalog, sql: str, simple: bool) -> None:
    assert (batch(catalog, sql).duckdb_sql is not None) is simple


def test_duckdb_text_runs_and_puts_nulls_where_spark_does(catalog: Catalog) -> None:
    text = batch(catalog, "SELECT id, sum(price) AS p, count(*) FROM t GROUP BY id ORDER BY id").duckdb_sql
    assert text is not None
    with duckdb.connect() as db:
        db.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (2, 'a', 1.5::DOUBLE), (NULL, 'b', 2.0), (2, 'c', 0.5)) v(id, name, price)"
        )
        result = db.execute(text)
        assert [c[0] for c in result.description] == ["id", "p", "count(1)"]
        assert result.fetchall() == [(None, 2.0, 1), (2, 2.0, 2)]


def test_any_and_all_of_a_query_are_in_and_not_in(catalog: Catalog) -> None:
    found = batch(catalog, "SELECT id FROM t WHERE id = ANY (SELECT x FROM t2) AND id <> ALL (SELECT 7)")
    assert found.spark_sql.endswith("WHERE id IN (SELECT x FROM `t2` AS `t2`) AND NOT id IN (SELECT 7)")


@pytest.mark.parametrize(
    ("sql", "code", "column"),
    [
        ("SELECT * FROM nope", "PSK-1002", 15),
        ("SELECT nme FROM t", "PSK-1004", 8),
        ("SELECT t.nme FROM t", "PSK-1004", 10),
        ("SELECT TUMBLE(ts, INTERVAL '1' SECOND) FROM s", "PSK-1012", 8),
        ("SELECT count(*) FROM s GROUP BY TUMBLE(k, INTERVAL '1' SECOND)", "PSK-2002", 40),
        ("SELECT count(*) FROM (SELECT now() AS ts) AS x GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)", "PSK-2002", 64),
        ("SELECT ? FROM t", "PSK-1018", 1),
        ("SELECT * FROM db.t", "PSK-1002", 15),
        ("SELECT price * 2 AS p FROM t WHERE p > 3", "PSK-1004", 36),
    ],
)
def test_refused(catalog: Catalog, sql: str, code: str, column: int) -> None:
    with pytest.raises(PenstockError) as caught:
        batch(catalog, sql)
    assert caught.value.position is not None
    assert (caught.value.code, caught.value.position.column) == (code, column)


def test_any_and_all_are_in_where_they_can_be(catalog: Catalog) -> None:
    text = batch(catalog, "SELECT k FROM s WHERE v = ANY (SELECT id FROM t) AND v <> ALL (SELECT x FROM t2)").spark_sql
    assert "v IN (SELECT id FROM `t` AS `t`)" in text and "NOT v IN (SELECT x FROM `t2` AS `t2`)" in text


@pytest.mark.parametrize(
    ("sql", "why", "node"),
    [
        ("SELECT k FROM s WHERE v > ALL (SELECT id FROM t)", "a comparison with ANY or ALL", Join),
        ("SELECT s.k FROM s ASOF JOIN r MATCH_CONDITION (s.ts >= r.rts) ON s.k = r.k", "an ASOF join", AsofJoin),
        ("SELECT sum(v) OVER (ORDER BY k GROUPS 1 PRECEDING) AS x FROM s ORDER BY x", "a GROUPS frame", Analytic),
        ("SELECT sum(v) OVER (ORDER BY k ROWS 1 PRECEDING EXCLUDE TIES) AS x FROM s", "EXCLUDE", Analytic),
    ],
)
def test_what_spark_sql_has_no_words_for_is_a_plan(catalog: Catalog, sql: str, why: str, node: type) -> None:
    found = batch(catalog, sql)
    assert found.plan is not None and found.unequal == f"it has {why}" and "s" in found.objects
    assert any(isinstance(n, node) for n in found.plan.root.walk())


def test_recursion_with_union_is_for_views(catalog: Catalog) -> None:
    step = "SELECT x FROM r JOIN t2 ON t2.id = r.id"
    assert (
        "RECURSIVE"
        in batch(catalog, f"WITH RECURSIVE r AS (SELECT id FROM t UNION ALL {step}) SELECT * FROM r").spark_sql
    )
    with pytest.raises(PenstockError, match="PSK-1012"):
        batch(catalog, f"WITH RECURSIVE r AS (SELECT id FROM t UNION {step}) SELECT * FROM r")


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT id, id IN (SELECT x FROM t2) FROM t", True),
        ("SELECT id, NOT id IN (SELECT x FROM t2 WHERE x > 1) AS a, id = ANY (SELECT x FROM t2) AS b FROM t", True),
        ("SELECT a.id, a.id NOT IN (SELECT b.x FROM t2 b WHERE b.id <> a.id) FROM t a", True),
        ("SELECT id FROM t WHERE NOT (price > 1 AND id IN (SELECT x FROM t2))", True),
        ("SELECT id FROM t WHERE (id IN (SELECT x FROM t2)) IS NULL", True),
        ("SELECT CASE id IN (SELECT x FROM t2) WHEN true THEN 1 WHEN false THEN 2 ELSE 3 END FROM t", True),
        ("SELECT id, id IN (SELECT x FROM t2 WHERE (x IN (SELECT id FROM t)) IS NOT NULL) FROM t", True),
        ("SELECT id FROM t WHERE id NOT IN (SELECT x FROM t2) OR price > 1", False),
        ("SELECT CASE WHEN NOT id IN (SELECT x FROM t2) THEN 1 ELSE 2 END FROM t", False),
        ("SELECT a.id FROM t a LEFT JOIN t2 b ON a.id = b.id AND a.id IN (SELECT x FROM t2)", False),
    ],
)
def test_in_a_query_is_null_where_nobody_knows(
    catalog: Catalog, db: duckdb.DuckDBPyConnection, sql: str, written: bool
) -> None:
    """Spark has FALSE there; the text that it is given says NULL. DuckDB, which knows NULL, means the same by both."""
    text = batch(catalog, sql).spark_sql
    assert ("CASE WHEN EXISTS" in text) is written
    said, wanted = (sqlglot.transpile(s, read="spark", write="duckdb")[0] for s in (text, sql))
    for rows in ("", "(1, 1), (2, 5)", "(1, 1), (2, 5), (3, NULL)"):
        db.execute("DELETE FROM t2" + (f"; INSERT INTO t2 VALUES {rows}" if rows else ""))
        assert answer(db, said) == answer(db, wanted)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (id, id) IN (SELECT id, x FROM t2) FROM t",
        "SELECT a.id IN (SELECT max(b.x) FROM t2 b WHERE b.id = a.id) FROM t a",
    ],
)
def test_in_a_query_that_cannot_be_written_out_is_a_plan(catalog: Catalog, sql: str) -> None:
    assert batch(catalog, sql).plan is not None


@pytest.mark.parametrize(
    ("sql", "numbered"),
    [
        ("SELECT id, (SELECT x FROM t2 WHERE t2.id = t.id ORDER BY x DESC LIMIT 1) AS top FROM t", True),
        (
            "SELECT a.id, (SELECT b.x + 1 AS y FROM t2 b WHERE b.id = a.id + 0 AND b.x > 1 ORDER BY y LIMIT 1) AS top FROM t a",
            True,
        ),
        (
            "SELECT a.id, l.x FROM t a LEFT JOIN LATERAL (SELECT x FROM t2 b WHERE b.id = a.id ORDER BY 1 LIMIT 2) l ON true",
            True,
        ),
        (
            "SELECT a.id, l.x FROM t a, LATERAL (SELECT x FROM t2 b WHERE b.id = a.id ORDER BY x LIMIT 1 OFFSET 1) l",
            True,
        ),
        (
            "SELECT a.id, l.n FROM t a, LATERAL (SELECT count(*) AS n FROM (SELECT x FROM t2 b WHERE b.id = a.id ORDER BY x LIMIT 2) c) l",
            True,
        ),
        ("SELECT a.name, l.* FROM t a, LATERAL (SELECT * FROM t2 b WHERE b.id = a.id ORDER BY x LIMIT 1) l", True),
        ("SELECT id FROM t WHERE price > (SELECT t2.x FROM t2 WHERE t2.id = t.id ORDER BY t2.x LIMIT 1)", True),
        ("SELECT id FROM t a WHERE EXISTS (SELECT x FROM t2 b WHERE b.id = a.id LIMIT 1)", False),
        ("SELECT id, (SELECT max(x) FROM t2 WHERE t2.id = t.id LIMIT 1) AS top FROM t", False),
        ("SELECT id, (SELECT max(x) FROM t2 LIMIT 1) AS top FROM t ORDER BY id LIMIT 2", False),
        ("SELECT t.id, c.x FROM t JOIN (SELECT x FROM t2 ORDER BY x LIMIT 1) c ON true", False),
    ],
)
def test_limit_in_a_correlated_query(catalog: Catalog, db: duckdb.DuckDBPyConnection, sql: str, numbered: bool) -> None:
    """Spark can take the first rows of all outer rows together; the text that it is given numbers the rows of each key."""
    text = batch(catalog, sql).spark_sql
    assert ("ROW_NUMBER()" in text) is numbered
    db.execute("DELETE FROM t2; INSERT INTO t2 VALUES (1, 1), (1, 2), (1, 3), (2, 4), (2, 0), (NULL, 6)")
    said, wanted = (sqlglot.transpile(s, read="spark", write="duckdb")[0] for s in (text, sql))
    assert answer(db, said) == answer(db, wanted)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (SELECT x FROM t2 WHERE t2.id < t.id ORDER BY x LIMIT 1) FROM t",
        "SELECT (SELECT x + t.id FROM t2 WHERE t2.id = t.id ORDER BY x LIMIT 1) FROM t",
        "SELECT l.* FROM t a, LATERAL (SELECT * FROM t2 b JOIN t c ON b.id = c.id WHERE b.id = a.id LIMIT 1) l",
        "SELECT l.* FROM t a, LATERAL (SELECT DISTINCT x FROM t2 b WHERE b.id = a.id LIMIT 1) l",
    ],
)
def test_limit_in_a_correlated_query_that_cannot_be_written_out_is_a_plan(catalog: Catalog, sql: str) -> None:
    assert batch(catalog, sql).plan is not None


def test_fields_of_structs_are_no_outer_columns(catalog: Catalog) -> None:
    text = batch(
        catalog, "SELECT v, (SELECT max(id) FROM t) FROM (SELECT v, st.a AS a FROM s ORDER BY st.b.c LIMIT 3) x"
    ).spark_sql
    assert "ROW_NUMBER()" not in text


def test_a_float_is_compared_as_a_double() -> None:
    catalog = Catalog("CREATE TABLE e (i INT, f FLOAT, g FLOAT)")
    text = batch(catalog, "SELECT (f) < 1 AND g IN (0.1, i) FROM e WHERE f BETWEEN 0.1 AND g OR NOT i = f GROUP BY f, g, i HAVING max(f) > 1.1").duckdb_sql  # fmt: skip
    assert text is not None
    with duckdb.connect() as db:
        db.execute("CREATE TABLE e AS SELECT * FROM (VALUES (16777217, 16777216::FLOAT, 0.1::FLOAT)) v(i, f, g)")
        assert db.execute(text).fetchall() == [(False,)]
        for condition in ("g = 0.1", "f = i", "f >= 16777217", "g IN (0.1, 2)", "g BETWEEN 0.05 AND 0.1"):
            text = batch(catalog, f"SELECT i FROM e WHERE {condition}").duckdb_sql
            assert text is not None and db.execute(text).fetchall() == [], condition


@pytest.mark.parametrize(
    ("inner", "planned"),
    [
        ("SELECT 1 FROM t b WHERE price > 0 AND EXISTS (SELECT 1 FROM t2 WHERE x > v)", True),
        ("SELECT 1 FROM t b WHERE EXISTS (SELECT 1 FROM (SELECT x AS w FROM t2) c WHERE w > v)", True),
        ("SELECT 1 FROM t b WHERE EXISTS (SELECT 1 FROM (SELECT x AS w FROM t2 WHERE x > v) c)", True),
        ("SELECT 1 FROM t b WHERE EXISTS (SELECT 1 FROM t2 WHERE x > st.a)", True),
        ("SELECT 1 FROM t b WHERE EXISTS (SELECT 1 FROM t2 JOIN (SELECT x AS v FROM t2) c ON true WHERE t2.x > v)", False),
        ("SELECT 1 FROM s b WHERE EXISTS (SELECT 1 FROM t2 WHERE x > v)", False),
        ("SELECT 1 FROM (SELECT *, id AS v FROM t) b WHERE EXISTS (SELECT 1 FROM t2 WHERE x > v)", False),
        ("SELECT 1 FROM t b WHERE EXISTS (SELECT max(x) AS m FROM t2 HAVING m > 1)", False),
        ("SELECT 1 FROM t b WHERE EXISTS (WITH v AS (SELECT x AS w FROM t2) SELECT 1 FROM v WHERE w > price)", False),
        ("SELECT 1 FROM t b WHERE price > v", False),
        ("SELECT 1 FROM t b WHERE EXISTS (SELECT 1 FROM t2 WHERE x > nowhere)", False),
    ],
)  # fmt: skip
def test_columns_of_a_query_two_levels_out_need_a_plan(catalog: Catalog, inner: str, planned: bool) -> None:
    assert (batch(catalog, f"SELECT k FROM s WHERE EXISTS ({inner})").plan is not None) is planned


def test_a_recursive_query_without_a_first_part_is_looked_at_once(catalog: Catalog) -> None:
    text = "WITH RECURSIVE r AS (SELECT * FROM r UNION ALL SELECT 1 AS a) SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM t2 WHERE EXISTS (SELECT 1 FROM r WHERE a = z))"
    assert batch(catalog, text).plan is None
