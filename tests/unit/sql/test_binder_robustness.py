"""For anything that the parser accepts, the binder returns a plan or raises an error with a code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as strategies
from tests.unit.sql.conftest import DDL, Catalog

from penstock.errors import PenstockError
from penstock.plan.explain import explain
from penstock.sql.bind import bind_batch
from penstock.sql.script import parse_script
from penstock.sql.statements import Select

CATALOG = Catalog(DDL)
scalars = strategies.recursive(
    strategies.sampled_from(
        ["k", "v", "d", "s.v", "ts", "arr[0]", "st.a", "1", "'x'", "NULL", "now()", "window_start", "nope"]
    ),
    lambda e: strategies.one_of(
        strategies.tuples(e, strategies.sampled_from(["+", "-", "*", "=", "<", ">=", "AND", "OR"]), e).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        e.map(lambda x: f"sum({x})"),
        e.map(lambda x: f"coalesce({x}, 1)"),
        e.map(lambda x: f"count(DISTINCT {x}) FILTER (WHERE {x} > 1)"),
        e.map(lambda x: f"max({x}) OVER (PARTITION BY k ORDER BY v)"),
        e.map(lambda x: f"(SELECT max({x}) FROM t WHERE t.id = v)"),
        e.map(lambda x: f"({x} IN (SELECT id FROM t))"),
        e.map(lambda x: f"({x} - INTERVAL '5' SECOND)"),
        e.map(lambda x: f"explode({x})"),
    ),
    max_leaves=4,
)
sources = strategies.sampled_from(
    [
        "s",
        "s JOIN t ON s.v = t.id",
        "s, UNNEST(arr) AS u(x)",
        "(SELECT * FROM s) AS s",
        "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        "s LEFT JOIN d USING (k)",
    ]
)
groups = strategies.sampled_from(
    [
        "",
        " GROUP BY k",
        " GROUP BY 1",
        " GROUP BY ALL",
        " GROUP BY ROLLUP(k, v)",
        " GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)",
        " GROUP BY k, SESSION(ts, INTERVAL '1' SECOND)",
    ]
)
tails = strategies.sampled_from(
    [
        "",
        " LIMIT 3",
        " ORDER BY 1 LIMIT 3",
        " HAVING count(*) > 1",
        " UNION SELECT 1",
        " QUALIFY row_number() OVER (ORDER BY 1) = 1",
    ]
)
queries = strategies.tuples(strategies.lists(scalars, min_size=1, max_size=3), sources, scalars, groups, tails).map(
    lambda q: f"SELECT {', '.join(f'{e} AS c{i}' for i, e in enumerate(q[0]))} FROM {q[1]} WHERE {q[2]}{q[3]}{q[4]}"
)


@given(queries)
def test_bound_or_refused(sql: str) -> None:
    try:
        query = CATALOG.plan(sql)
    except PenstockError as e:
        e.render()
        return
    assert explain(query)
    assert len(query.names) == len(query.root.columns)


@given(queries)
def test_batch_bound_or_refused(sql: str) -> None:
    try:
        (statement,) = parse_script(sql)
        assert isinstance(statement, Select)
        bound = bind_batch(statement.query, CATALOG)
        assert bound.spark_sql or bound.plan is not None
    except PenstockError as e:
        e.render()
