"""Names and expressions of a plan as users know them."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import DDL, Catalog

from penstock.plan import nodes as p
from penstock.plan.shown import call_text, shown, text, window_text
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.script import parse_script


def plan(select: str) -> p.Node:
    (statement,) = parse_script(select)
    assert isinstance(statement, st.Select)
    return bind(statement.query, Catalog(DDL)).root


def only(root: p.Node, kind: type) -> p.Node:
    (found,) = [n for n in root.walk() if isinstance(n, kind)]
    return found


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("SELECT k, v + 1 AS w FROM s", {"k", "v"}),
        ("SELECT a.id, b.id AS other, a.name, b.x FROM t a JOIN t2 b ON a.id = b.x", {"a.id", "b.id", "name", "x"}),
    ],
)
def test_columns_that_are_read(select: str, names: set[str]) -> None:
    root = plan(select)
    node = root.children[0]
    assert set(shown(node).values()) == names


def test_expressions() -> None:
    root = plan("SELECT k, v + 1 AS w FROM s WHERE v > 1")
    assert isinstance(root, p.Project)
    filtered = only(root, p.Filter)
    assert isinstance(filtered, p.Filter)
    assert text(root.items[1].expr, shown(root.child)) == "v + 1"
    assert text(filtered.predicate, shown(filtered.child)) == "v > 1"


def test_aggregates() -> None:
    root = plan(
        "SELECT k, window_end, sum(v) / count(DISTINCT d) AS q FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)"
    )
    assert isinstance(root, p.Project)
    made = only(root, p.Aggregate)
    assert isinstance(made, p.Aggregate)
    assert text(root.items[-1].expr, shown(root.child)) == "sum(v) / count(DISTINCT d)"
    assert [call_text(a, shown(made.child)) for a in made.aggs] == ["sum(v)", "count(DISTINCT d)"]
    assert shown(made)[made.keys[-1].name] == "window_end"


def test_filtered_aggregate() -> None:
    made = only(plan("SELECT count(*) FILTER (WHERE v > 1) AS n FROM s"), p.Aggregate)
    assert isinstance(made, p.Aggregate)
    assert call_text(made.aggs[0], shown(made.child)) == "count(*) FILTER (WHERE v > 1)"


def test_analytic_functions() -> None:
    made = only(plan("SELECT k, sum(v) OVER (PARTITION BY k ORDER BY ts) AS n FROM s"), p.Analytic)
    assert isinstance(made, p.Analytic)
    assert window_text(made.calls[0], shown(made.child)) == "sum(v)"
