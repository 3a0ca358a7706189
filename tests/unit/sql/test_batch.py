"""One-shot SELECT: Spark text, objects, and DuckDB text where both mean the same."""

from __future__ import annotations

import duckdb
import pytest
from tests.unit.sql.conftest import Catalog

from penstock.errors import PenstockError
from penstock.sql.bind import BatchQuery, bind_batch
from penstock.sql.script import parse_script
from penstock.sql.statements import Select


def batch(catalog: Catalog, sql: str) -> BatchQuery:
    (statement,) = parse_script(sql)
    assert isinstance(statement, Select)
    return bind_batch(statement.query, catalog)


def test_names_are_resolved_and_quoted(catalog: Catalog) -> None:
    found = batch(catalog, "SELECT X.name, strpos(name, 'a') FROM T x JOIN s ON x.id = s.v")
    assert found.objects == ("t", "s")
    assert "FROM `t` AS x JOIN `s` AS `s`" in found.spark_sql
    assert "LOCATE('a', name) AS `str_position(name, a)`" in found.spark_sql
    assert not found.simple


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
    found = batch(catalog, sql)
    assert found.simple is simple and (found.duckdb_sql is not None) is simple


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
        ("SELECT count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)", "PSK-1012", 33),
        ("SELECT s.k FROM s ASOF JOIN r MATCH_CONDITION (s.ts >= r.rts) ON s.k = r.k", "PSK-1012", 19),
        ("SELECT ? FROM t", "PSK-1018", 1),
        ("SELECT * FROM db.t", "PSK-1002", 15),
        ("SELECT price * 2 AS p FROM t WHERE p > 3", "PSK-1004", 36),
        ("SELECT id FROM t WHERE id > ALL (SELECT x FROM t2)", "PSK-1012", 41),
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
    with pytest.raises(PenstockError, match="PSK-1012"):
        batch(catalog, "SELECT k FROM s WHERE v > ALL (SELECT id FROM t)")


def test_recursion_with_union_is_for_views(catalog: Catalog) -> None:
    step = "SELECT x FROM r JOIN t2 ON t2.id = r.id"
    assert (
        "RECURSIVE"
        in batch(catalog, f"WITH RECURSIVE r AS (SELECT id FROM t UNION ALL {step}) SELECT * FROM r").spark_sql
    )
    with pytest.raises(PenstockError, match="PSK-1012"):
        batch(catalog, f"WITH RECURSIVE r AS (SELECT id FROM t UNION {step}) SELECT * FROM r")
