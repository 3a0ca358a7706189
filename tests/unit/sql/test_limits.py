"""Large statements work up to a limit, and are refused beyond it: never with an error of Python's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.effort import EFFORT, times
from tests.unit.sql.conftest import DDL, Catalog

from penstock.errors import PenstockError
from penstock.plan.explain import explain
from penstock.sql import limits, parser
from penstock.sql import statements as st
from penstock.sql.bind import bind, bind_batch, context
from penstock.sql.limits import MAX_JOINS, MAX_NESTING, MAX_WRITTEN
from penstock.sql.script import parse_script

CATALOG = Catalog(DDL)
Shape = Callable[[int], str]
# A statement at a limit takes a second of sqlglot's time. `make test` lowers the limits; `make test-long` tests them as they are.
LOWERED = 20 if EFFORT == 1 else 1
# More than Python's usual stack can hold.
MANY = 1_050 if EFFORT == 1 else 3_000

NESTED: dict[str, Shape] = {
    "parentheses": lambda n: "SELECT " + "(" * n + "v" + ")" * n + " AS x FROM s",
    "calls": lambda n: "SELECT " + "abs(" * n + "v" + ")" * n + " AS x FROM s",
    "cases": lambda n: "SELECT " + "CASE WHEN v > 1 THEN " * n + "1" + " ELSE 0 END" * n + " AS x FROM s",
    "not": lambda n: "SELECT k FROM s WHERE " + "NOT " * n + "v > 1",
    "minus": lambda n: "SELECT " + "- " * n + "v AS x FROM s",
    "casts": lambda n: "SELECT " + "CAST(" * n + "v" + " AS BIGINT)" * n + " AS x FROM s",
    "derived tables": lambda n: "SELECT v FROM " + "(SELECT v FROM " * n + "s" + ") AS q" * n,
    "arrays": lambda n: "SELECT " + "array(" * n + "v" + ")" * n + " AS x FROM s",
}
CHAINS: dict[str, tuple[Shape, str]] = {
    "and": (lambda n: "SELECT k FROM s WHERE " + " AND ".join(f"v <> {i}" for i in range(n)), "MAX_CONDITIONS"),
    "or": (lambda n: "SELECT k FROM s WHERE " + " OR ".join(f"v = {i}" for i in range(n)), "MAX_CONDITIONS"),
    "and or": (lambda n: "SELECT k FROM s WHERE " + " OR ".join(f"v = {i} AND d = {i}" for i in range(n // 2)), "MAX_CONDITIONS"),
    "plus": (lambda n: "SELECT " + " + ".join(["v"] * n) + " AS x FROM s", "MAX_TERMS"),
    "plus minus": (lambda n: "SELECT v" + " - v + v" * (n // 2 - 1) + " AS x FROM s", "MAX_TERMS"),
    "concat": (lambda n: "SELECT " + " || ".join(["k"] * n) + " AS x FROM s", "MAX_TERMS"),
    "union": (lambda n: " UNION ALL ".join(["SELECT k FROM s"] * n), "MAX_BLOCKS"),
}  # fmt: skip
JOINED: dict[str, Shape] = {
    "on": lambda n: "SELECT t0.id FROM t AS t0 " + " ".join(f"JOIN t AS t{i} ON t0.id = t{i}.id" for i in range(1, n + 1)),
    "using": lambda n: "SELECT id FROM t AS t0 " + " ".join(f"JOIN t AS t{i} USING (id)" for i in range(1, n + 1)),
    "full using": lambda n: "SELECT id FROM t AS t0 " + " ".join(f"FULL JOIN t AS t{i} USING (id)" for i in range(1, n + 1)),
}  # fmt: skip


def continuous(sql: str) -> None:
    (statement,) = parse_script(f"CREATE MATERIALIZED VIEW o AS {sql}")
    assert isinstance(statement, st.CreateView)
    query = bind(statement.query, CATALOG)
    assert explain(query)
    for node in query.root.walk():
        assert node.columns


def one_shot(sql: str) -> None:
    (statement,) = parse_script(sql)
    assert isinstance(statement, st.Select)
    assert bind_batch(statement.query, CATALOG).spark_sql


def too_complex(call: Callable[[str], object], sql: str) -> None:
    with pytest.raises(PenstockError) as caught:
        call(sql)
    assert caught.value.code == "PSK-1020"
    assert caught.value.hint
    assert caught.value.position is not None
    caught.value.render()


@pytest.mark.parametrize("name", NESTED)
def test_nested(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = NESTED[name]
    most, many = MAX_NESTING, MANY
    if EFFORT == 1 and name not in ("parentheses", "not", "calls"):
        most, many = 60, 150
        for module in (limits, parser):
            monkeypatch.setattr(module, "MAX_NESTING", most)
    for how in (one_shot, continuous):
        how(shape(most - 5))
    for n in (most + 5, many):
        too_complex(parse_script, shape(n))


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (limits, "MAX_CONDITIONS"),
        (limits, "MAX_TERMS"),
        (context, "MAX_BLOCKS"),
        (context, "MAX_NODES"),
    ):
        monkeypatch.setattr(module, name, getattr(limits, name) // LOWERED)


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    shape, limit = CHAINS[name]
    most = getattr(limits if limit != "MAX_BLOCKS" else context, limit)
    for how in (one_shot, continuous):
        how(shape(most))
    too_complex(continuous, shape(most + 2))


def test_a_chain_that_python_cannot_walk() -> None:
    continuous(CHAINS["and"][0](MANY))


@pytest.mark.parametrize("name", JOINED)
def test_joins(name: str) -> None:
    for how in (one_shot, continuous):
        how(JOINED[name](60 if EFFORT > 1 else 25))
    too_complex(continuous, JOINED[name](MAX_JOINS + 1))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE t SET name = 'a' WHERE " + " AND ".join(f"id <> {i}" for i in range(MANY)),
        "DELETE FROM t WHERE " + " OR ".join(f"id = {i}" for i in range(MANY)),
        "SUBSCRIBE t WHERE " + " AND ".join(f"id <> {i}" for i in range(MANY if EFFORT > 1 else 300)),
        "UPDATE t SET price = " + " + ".join(["price"] * 1_000),
        "INSERT INTO t VALUES " + ", ".join(f"({i}, 'a', -{i}.5)" for i in range(MANY if EFFORT > 1 else 300)),
        "DELETE FROM t WHERE id IN (" + ", ".join(map(str, range(MANY))) + ")",
        "UPDATE t SET price = " + "(" * 90 + "1" + ")" * 90,
    ],
)
def test_large_writes(sql: str) -> None:
    """Their expressions are written out where no large stack is at hand."""
    (statement,) = parse_script(sql)
    parts = [getattr(statement, "where", None), *(e for _, e in getattr(statement, "assignments", ()))]
    for part in parts:
        assert part is None or part.sql(dialect="spark")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE t SET price = " + "(" * (MAX_WRITTEN + 1) + "1" + ")" * (MAX_WRITTEN + 1),
        "UPDATE t SET price = " + "- " * 500 + "1",
        "DELETE FROM t WHERE " + "NOT " * 500 + "id > 1",
        "INSERT INTO t VALUES (1, 'a', " + "abs(" * 150 + "1" + ")" * 150 + ")",
        "SUBSCRIBE t WHERE " + "CASE WHEN true THEN " * 150 + "true" + " END" * 150,
        "UPDATE t SET price = 1" + " - 1 + 1" * 100,
        "CREATE SOURCE o (a INT DEFAULT " + "(" * MANY + "1" + ")" * MANY + ")",
    ],
)
def test_writes_beyond_a_limit(sql: str) -> None:
    too_complex(parse_script, sql)


@pytest.mark.usefixtures("lowered")
def test_a_write_with_too_many_conditions() -> None:
    too_complex(
        parse_script, "DELETE FROM t WHERE " + " AND ".join(f"id <> {i}" for i in range(limits.MAX_CONDITIONS + 1))
    )


@pytest.mark.usefixtures("lowered")
def test_what_doubles_with_every_step_is_refused_soon() -> None:
    ctes = "WITH c0 AS (SELECT id FROM t)" + "".join(
        f", c{i} AS (SELECT a.id FROM c{i - 1} AS a JOIN c{i - 1} AS b ON a.id = b.id)" for i in range(1, 41)
    )
    aliases = "SELECT v + v AS a0" + "".join(f", a{i - 1} + a{i - 1} AS a{i}" for i in range(1, 41)) + " FROM s"
    nested = (
        "SELECT id FROM t WHERE "
        + "id IN (SELECT x.id FROM t AS x WHERE x.price < t.price AND " * 40
        + "true"
        + ")" * 40
    )
    started = time.process_time()
    too_complex(continuous, f"{ctes} SELECT id FROM c40")
    too_complex(one_shot, f"{ctes} SELECT id FROM c40")
    too_complex(continuous, aliases)
    try:
        continuous(nested)
    except PenstockError as error:
        assert error.code in ("PSK-1020", "PSK-1012", "PSK-1005")  # noqa: PT017 refused or bound, but soon
    assert time.process_time() - started < 60


def test_types_are_not_nested_without_end() -> None:
    too_complex(parse_script, "CREATE TABLE o (a " + "ARRAY<" * MANY + "INT" + ">" * MANY + ")")
    parse_script("CREATE TABLE o (a " + "ARRAY<" * 20 + "INT" + ">" * 20 + ")")


def test_scripts_of_many_statements() -> None:
    many = times(375, quick=200)
    assert len(parse_script(";".join(["SELECT 1"] * many))) == many
    assert len(parse_script(";".join(["SHOW TABLES"] * many))) == many


def test_the_page_lists_the_limits() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "security.md").read_text()
    values = [v for k, v in vars(limits).items() if k.startswith("MAX_")]
    assert [v for v in values if f"| {v:,} |" not in page] == []
