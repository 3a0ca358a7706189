"""Named queries: expanded in continuous and in one-shot queries, with the names of the place where they were written."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import DDL, Catalog

from penstock.errors import PenstockError
from penstock.plan.explain import explain
from penstock.sql.bind import bind_batch
from penstock.sql.script import parse_script
from penstock.sql.statements import Select

VIEWS = """
CREATE VIEW big (a, b) AS SELECT k, v FROM s WHERE v > 10 ORDER BY v DESC;
CREATE VIEW ones AS WITH t AS (SELECT 1 AS one) SELECT big.a, t.one FROM big, t;
CREATE VIEW probed AS SELECT p.offset_ms AS off, x.w AS w FROM s TEMPORAL PROBE JOIN r x ON (k) LIST (-5s, 0s) AS p;
CREATE VIEW wide AS SELECT a.k, b.w FROM s a JOIN r b ON a.k = b.k AND b.rts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR;
CREATE MATERIALIZED VIEW ranked AS SELECT id, name FROM t ORDER BY name, id DESC NULLS FIRST;
"""


@pytest.fixture(scope="module")
def views() -> Catalog:
    return Catalog(DDL + VIEWS)


def spark(views: Catalog, sql: str) -> str:
    (statement,) = parse_script(sql)
    assert isinstance(statement, Select)
    return bind_batch(statement.query, views).spark_sql


def test_a_view_is_bound_like_the_derived_table_that_it_is(views: Catalog) -> None:
    derived = "SELECT q.a, count(*) AS n FROM (SELECT k AS a, v AS b FROM s WHERE v > 10) q WHERE q.b < 20 GROUP BY q.a"
    assert explain(views.plan(derived.replace("(SELECT k AS a, v AS b FROM s WHERE v > 10)", "big"))) == explain(
        views.plan(derived)
    )
    assert views.plan("SELECT * FROM ones").expands == tuple(o.id for o in (views.get("ones"), views.get("big")) if o)


def test_probe_joins_of_a_view_and_of_the_query_around_it_are_told_apart(views: Catalog) -> None:
    text = explain(
        views.plan(
            "SELECT off FROM probed UNION ALL SELECT q.offset_ms FROM s TEMPORAL PROBE JOIN r x ON (k) LIST (7s) AS q"
        )
    )
    assert "-5000" in text and "7000" in text


def test_a_view_does_not_see_the_ctes_of_the_query_that_reads_it(views: Catalog) -> None:
    text = spark(views, "WITH s AS (SELECT 1 AS k) SELECT ones.one, s.k FROM ones, s")
    assert text.index("`__view_big`(`a`, `b`) AS (SELECT k, v FROM `s`") < text.index("s AS (SELECT 1 AS k)")
    assert "`__cte_" in text and "FROM `t`" not in text


def test_nested_ctes_hide_nothing_outside_of_their_query(views: Catalog) -> None:
    text = spark(views, "SELECT t.id, q.x FROM t, (WITH t AS (SELECT 1 AS x) SELECT t.x FROM t) q")
    assert "FROM `t` AS `t`" in text and "FROM `__cte_0_t` AS `t`" in text
    assert "WITH t AS (SELECT * FROM `t` AS `t`)" in spark(views, "WITH t AS (SELECT * FROM t) SELECT * FROM t")


@pytest.mark.parametrize(
    ("sql", "order"),
    [
        ("SELECT * FROM ranked", "ORDER BY `ranked`.`name` ASC, `ranked`.`id` DESC NULLS FIRST"),
        ("SELECT id AS name FROM ranked r LIMIT 2", "ORDER BY `r`.`name` ASC, `r`.`id` DESC NULLS FIRST LIMIT 2"),
        ("SELECT a FROM big WHERE b < 20", "ORDER BY `big`.`b` DESC"),
        ("SELECT id, count(*) OVER () FROM ranked", "ORDER BY `ranked`.`name`"),
        ("SELECT * FROM ranked ORDER BY id", None),
        ("SELECT count(*) FROM ranked", None),
        ("SELECT DISTINCT name FROM ranked", None),
        ("SELECT name FROM ranked GROUP BY name", None),
        ("SELECT ranked.* FROM ranked, t", None),
        ("SELECT * FROM ranked UNION ALL SELECT * FROM ranked", None),
        ("SELECT explode(array(id)) FROM ranked", None),
    ],
)
def test_the_order_of_a_view_is_that_of_a_select_of_its_rows(views: Catalog, sql: str, order: str | None) -> None:
    text = spark(views, sql)
    assert order in text if order is not None else "ranked`.`name`" not in text


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT nope FROM big", "PSK-1004 8+4 unknown column nope"),
        ("SELECT * FROM wide CROSS JOIN s", "PSK-3003 31+1 streams cannot be cross joined"),
        ("WITH __view_x AS (SELECT 1 AS a) SELECT * FROM __view_x", None),
    ],
)
def test_errors_have_a_place_in_the_query_that_reads_the_view(views: Catalog, sql: str, shown: str | None) -> None:
    with pytest.raises(PenstockError) as caught:
        views.plan(sql) if shown is not None else spark(views, sql)
    e = caught.value
    assert e.position is not None
    assert shown is None or f"{e.code} {e.position.column}+{e.position.length} {e.detail}" == shown
    assert shown is not None or e.code == "PSK-1015"
