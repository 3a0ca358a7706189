"""Which parts of a plan are shared: identical ones, whatever the internal names of their columns."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import DDL, Catalog

from penstock.plan.explain import explain
from penstock.plan.nodes import AggCall, Aggregate, Named, Scan, Union, col
from penstock.plan.repeats import repeats, shape

SUMS = "WITH c AS (SELECT k, sum(v) AS n, count(*) AS m FROM s GROUP BY k) "


def again(sql: str) -> list[str]:
    """The lines of EXPLAIN that concern parts, without what is drawn before them."""
    lines = explain(Catalog(DDL).plan(sql)).splitlines()
    return [line.lstrip("│├└─ ") for line in lines if "Part " in line]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            SUMS + "SELECT a.k, b.x FROM c a JOIN (SELECT max(n) AS x FROM c) b ON a.n = b.x",
            ["Part 1: Aggregate [sum(s$v) AS agg] by [s$k] changes ±", "Part 1 again → [s_2$k, agg_3] ±"],
        ),
        # Three places; and the subquery that is written out twice is as good as one with a name.
        (
            SUMS + "SELECT k, n, m FROM c UNION ALL SELECT k, n, m FROM c "
            "UNION ALL SELECT * FROM (SELECT k, sum(v), count(*) FROM s GROUP BY k)",
            [
                "Part 1: Aggregate [sum(s$v) AS agg, count(*) AS agg_2] by [s$k] changes ±",
                "Part 1 again → [s_2$k, agg_3, agg_4] ±",
                "Part 1 again → [s_3$k, agg_5, agg_6] ±",
            ],
        ),
        # Only the largest part has a number; a part inside it has another number if it also occurs elsewhere.
        (
            "WITH c AS (SELECT k, sum(v) AS n FROM s GROUP BY k), top AS (SELECT k, n FROM c ORDER BY n LIMIT 2) "
            "SELECT a.k, a.n FROM top a JOIN top b ON a.k = b.k",
            ["Part 1: TopN order [agg] limit 2 ±", "Part 1 again → [s_2$k, agg_2] ±"],
        ),
        (
            "WITH c AS (SELECT k, sum(v) AS n FROM s GROUP BY k), top AS (SELECT k, n FROM c ORDER BY n LIMIT 2) "
            "SELECT a.k, a.n, c.n AS m FROM top a JOIN top b ON a.k = b.k JOIN c ON a.k = c.k",
            [
                "Part 1: TopN order [agg] limit 2 ±",
                "Part 2: Aggregate [sum(s$v) AS agg] by [s$k] changes ±",
                "Part 1 again → [s_2$k, agg_2] ±",
                "Part 2 again → [s_3$k, agg_3] ±",
            ],
        ),
        # A part has the columns that any of its places needs, even inside another part.
        (
            SUMS + "SELECT a.k, a.n, b.m FROM c a JOIN c b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k)",
            [
                "Part 1: Aggregate [sum(s$v) AS agg, count(*) AS agg_2] by [s$k] changes ±",
                "Part 1 again → [s_2$k, agg_3, agg_4] ±",
                "Part 1 again → [s_3$k, agg_5, agg_6] ±",
            ],
        ),
        (
            SUMS + ", top AS (SELECT k, n FROM c ORDER BY n LIMIT 2) "
            "SELECT a.k, a.n, c.m FROM top a JOIN top b ON a.k = b.k JOIN c ON a.k = c.k",
            [
                "Part 1: TopN order [agg] limit 2 ±",
                "Part 2: Aggregate [sum(s$v) AS agg, count(*) AS agg_2] by [s$k] changes ±",
                "Part 1 again → [s_2$k, agg_3] ±",
                "Part 2 again → [s_3$k, agg_5, agg_6] ±",
            ],
        ),
        # Nothing to keep, read once, another column, another filter, another object, another limit.
        ("WITH c AS (SELECT k FROM s WHERE v > 1) SELECT k FROM c UNION ALL SELECT k FROM c", []),
        (SUMS + "SELECT k, n FROM c", []),
        ("SELECT sum(v) FROM s UNION ALL SELECT sum(d) FROM s", []),
        ("SELECT sum(v) FROM s WHERE v > 1 UNION ALL SELECT sum(v) FROM s WHERE v > 2", []),
        ("SELECT count(*) FROM s UNION ALL SELECT count(*) FROM r", []),
        ("(SELECT k FROM raw ORDER BY v LIMIT 1) UNION ALL (SELECT k FROM raw ORDER BY v LIMIT 2)", []),
        # What is drawn by lot is drawn for each place.
        (
            "WITH c AS (SELECT k, max(rand()) AS x FROM s GROUP BY k) SELECT k, x FROM c UNION ALL SELECT k, x FROM c",
            [],
        ),
    ],
)
def test_parts(sql: str, expected: list[str]) -> None:
    assert again(sql) == expected


def scan(name: str, column: str = "a") -> Scan:
    return Scan("s", 1, ((name, column),), False)


def counted(child: Scan, func: str, name: str) -> Aggregate:
    return Aggregate(child, (Named(f"{name}_k", col(child.columns[0])),), (AggCall(name, func, ()),))


def test_a_name_is_no_constant() -> None:
    one, other = counted(scan("x"), "count", "n"), counted(scan("y"), "count", "m")
    assert shape(one) == shape(other)
    # Columns that bear the names of functions do not make these functions one.
    assert shape(counted(scan("x"), "count", "count")) != shape(counted(scan("x"), "max", "max"))
    assert shape(counted(scan("x"), "count", "n")) != shape(counted(scan("x", "b"), "count", "n"))


def test_one_node_in_two_places_is_a_part() -> None:
    node = counted(scan("x"), "count", "n")
    assert repeats(Union((node, node))) == {id(node): 1}
    assert repeats(node) == {}
