"""Which query continues another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.catalog.store import Catalog
from penstock.plan import nodes as p
from penstock.plan.succession import obstacle, same_state
from penstock.sql.bind import bind
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateView

GROUPED = "SELECT k, sum(v) AS n FROM t GROUP BY k"
JOINED = "SELECT k, v, x FROM t JOIN u USING (k)"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "catalog.json")
    for number, (name, columns) in enumerate({"t": "k v w", "u": "k x"}.items(), start=1):
        types = tuple(Column(c, "bigint") for c in columns.split())
        made.add(ObjectInfo(number, name, Kind.TABLE, types, changelog=True))
    return made


def bound(catalog: Catalog, sql: str) -> p.Query:
    (statement,) = parse_script(f"CREATE MATERIALIZED VIEW m AS {sql}")
    assert isinstance(statement, CreateView)
    return bind(statement.query, catalog)


@pytest.mark.parametrize(
    ("old", "new", "same", "why"),
    [
        (GROUPED, GROUPED, True, None),
        (GROUPED, "SELECT k, sum(v) + 1 AS n FROM t GROUP BY k HAVING sum(v) > 3", True, None),
        (GROUPED, "SELECT k, sum(v) AS n, max(w) AS m FROM t GROUP BY k", False, None),
        (GROUPED, "SELECT k, count(*) AS n FROM t GROUP BY k", False, None),
        (GROUPED, "SELECT k, v FROM t", False, None),
        (GROUPED, "SELECT w, sum(v) AS n FROM t GROUP BY w", False, "the aggregate by w: its input or its keys"),
        (GROUPED, "SELECT k, sum(v) AS n FROM t WHERE w > 1 GROUP BY k", False, "the aggregate by k: its input or its"),
        (GROUPED, "SELECT k, sum(v) AS n FROM t GROUP BY k, w", False, "the aggregate by k, w: the old one has 1 key"),
        (GROUPED, "SELECT DISTINCT k, v FROM t", False, "Distinct: the old query has no such operator"),
        (JOINED, f"{JOINED} WHERE v > x", True, None),
        (
            JOINED,
            "SELECT k, sum(v) AS n FROM t JOIN u USING (k) GROUP BY k",
            False,
            "the aggregate by k: the old query",
        ),
        (JOINED, "SELECT k, v, x FROM t JOIN u USING (k) WHERE w > 1", False, "Join: its input or its keys"),
    ],
)
def test_operators_are_compared(catalog: Catalog, old: str, new: str, same: bool, why: str | None) -> None:
    one, other = bound(catalog, old), bound(catalog, new)
    assert same_state(one, other) is same
    found = obstacle(one, other)
    assert (found is None) is (why is None)
    assert why is None or why in str(found)
