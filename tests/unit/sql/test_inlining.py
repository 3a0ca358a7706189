"""Calls of SQL functions become expressions."""

from __future__ import annotations

import pytest
import sqlglot

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.errors import PenstockError
from penstock.plan.dialect import DIALECT, Penstock
from penstock.sql.bind.inlining import RETURNS, Inlining
from penstock.sql.bind.tablefunctions import with_table
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateFunction

_FUNCTIONS = """
    CREATE FUNCTION twice(x INT) RETURNS BIGINT RETURN x * 2;
    CREATE FUNCTION near(a DOUBLE, b DOUBLE DEFAULT 0, `By` DOUBLE DEFAULT 1 + 1) RETURNS BOOLEAN COMMENT 'close' RETURN abs(a - near.b) <= by;
    CREATE FUNCTION more(x INT) RETURNS INT LANGUAGE SQL RETURN twice(twice(x)) + x;
    CREATE FUNCTION field(s STRUCT<a: INT>) RETURNS INT RETURN s.a + field.s.a;
    CREATE FUNCTION each(l ARRAY<INT>, x INT) RETURNS ARRAY<INT> RETURN transform(l, x -> x + 1);
    CREATE FUNCTION one() RETURNS INT RETURN 1;
"""


class _Catalog:
    def __init__(self) -> None:
        self.objects: dict[str, ObjectInfo] = {}
        for i, s in enumerate(parse_script(_FUNCTIONS)):
            assert isinstance(s, CreateFunction) and s.returns is not None
            self.objects[s.name] = ObjectInfo(
                i, s.name, Kind.FUNCTION, s.parameters, sql=s.text, options={RETURNS: s.returns}
            )

    def get(self, name: str, /) -> ObjectInfo | None:
        return self.objects.get(name.lower())

    def names(self) -> list[str]:
        return list(self.objects)


def _inlined(text: str) -> str:
    tree = sqlglot.parse_one(text, dialect=Penstock)
    return Inlining(_Catalog(), None, programs=False).tree(tree).sql(dialect=DIALECT)


@pytest.mark.parametrize(
    ("written", "inlined"),
    [
        ("a + 1", "a + 1"),
        ("twice(a + 1)", "CAST(CAST(a + 1 AS int) * 2 AS bigint)"),
        ("1 + TWICE(twice(a))", "1 + CAST(CAST(CAST(CAST(a AS int) * 2 AS bigint) AS int) * 2 AS bigint)"),
        ("near(a)", "CAST(ABS(CAST(a AS double) - CAST(0 AS double)) <= CAST(1 + 1 AS double) AS boolean)"),
        ("near(a, by => b)", "CAST(ABS(CAST(a AS double) - CAST(0 AS double)) <= CAST(b AS double) AS boolean)"),
        ("field(r)", "CAST(CAST(r AS struct<a:int>).a + CAST(r AS struct<a:int>).a AS int)"),
        ("each(l, 7)", "CAST(TRANSFORM(CAST(l AS array<int>), x -> x + 1) AS array<int>)"),
        ("one()", "CAST(1 AS int)"),
        ("CASE WHEN a THEN one() END", "CASE WHEN a THEN CAST(1 AS int) END"),
    ],
)  # fmt: skip
def test_a_call_is_its_result_with_values_for_parameters(written: str, inlined: str) -> None:
    assert _inlined(written).lower() == inlined.lower()


def test_functions_call_functions() -> None:
    assert _inlined("more(a)").lower().count("* 2") == 2


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("twice()", "PSK-1007"),
        ("twice(1, 2)", "PSK-1007"),
        ("near(1, a => 2)", "PSK-1007"),
        ("near(1, c => 2)", "PSK-1007"),
        ("more(rand())", "PSK-1012"),
    ],
)
def test_calls_that_fit_no_function_are_refused(call: str, code: str) -> None:
    with pytest.raises(PenstockError, match=code):
        _inlined(call)


def test_a_value_that_changes_may_be_used_once() -> None:
    assert "rand()" in _inlined("twice(rand() * 10)").lower()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE FUNCTION f(x INT, x INT) RETURN 1", "PSK-1014"),
        ("CREATE FUNCTION f(x INT PRIMARY KEY) RETURN 1", "PSK-1012"),
        ("CREATE FUNCTION f(x INT DEFAULT 1, y INT) RETURN 1", "PSK-1012"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE (a INT) RETURN x + 1", "PSK-1001"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE (a INT, a INT) RETURN SELECT 1, 2", "PSK-1014"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE (a INT DEFAULT 1) RETURN SELECT 1", "PSK-1012"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE () RETURN SELECT 1", "PSK-1001"),
        ("CREATE FUNCTION f(x INT) RETURN (SELECT max(a) FROM t)", "PSK-1012"),
        ("CREATE FUNCTION f(x INT) RETURNS INT", "PSK-1001"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN", "PSK-1001"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1 FROM t", "PSK-1001"),
        ("CREATE FUNCTION f RETURNS INT RETURN 1", "PSK-1001"),
    ],
)
def test_statements_that_are_refused(text: str, code: str) -> None:
    with pytest.raises(PenstockError) as refused:
        parse_script(text)
    assert refused.value.code == code and refused.value.position is not None


_TABLES = """
    CREATE FUNCTION of_key(x INT, y STRING DEFAULT 'a') RETURNS TABLE (v INT, w BIGINT) RETURN SELECT v, w FROM t WHERE k = x AND n = y;
    CREATE FUNCTION first_of(least INT) RETURNS TABLE (v INT) RETURN SELECT q.v FROM of_key(least) AS q LIMIT 1;
"""


class _Tables(_Catalog):
    def __init__(self) -> None:
        super().__init__()
        columns = tuple(Column(n, t) for n, t in (("k", "int"), ("n", "string"), ("v", "int"), ("w", "int")))
        self.objects["t"] = ObjectInfo(90, "t", Kind.TABLE, columns)
        for i, s in enumerate(parse_script(_TABLES), 100):
            assert isinstance(s, CreateFunction) and s.table is not None
            found = [Column(c.name, "int") for c in s.table]
            options = {RETURNS: "table"} | with_table(s.table, found)
            self.objects[s.name] = ObjectInfo(i, s.name, Kind.FUNCTION, s.parameters, sql=s.text, options=options)


def _from(text: str) -> str:
    tree = sqlglot.parse_one(text, dialect=Penstock)
    return Inlining(_Tables(), None, programs=False).tree(tree).sql(dialect=DIALECT)


_OF_KEY = (
    "SELECT `v`, CAST(`w` AS BIGINT) AS `w` FROM (SELECT v, w FROM t WHERE k = CAST({} AS INT) AND n = CAST({} AS STRING))"
    " AS `__returned`(`v`, `w`)"
)


def test_a_call_in_from_is_a_derived_table() -> None:
    assert _from("SELECT * FROM of_key(3)") == f"SELECT * FROM ({_OF_KEY.format(3, repr('a'))}) AS `of_key`(`v`, `w`)"
    made = _from("SELECT a FROM x, LATERAL of_key(x.i, y => m) AS q(a, b)")
    assert made == f"SELECT a FROM x CROSS JOIN LATERAL ({_OF_KEY.format('x.i', 'm')}) AS q(a, b)"
    nested = _from("SELECT * FROM TABLE(first_of(7)) z")
    inner = _OF_KEY.format("CAST(7 AS INT)", repr("a"))
    assert nested == f"SELECT * FROM (SELECT q.v FROM ({inner}) AS q(`v`, `w`) LIMIT 1) AS z(`v`)"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT of_key(1)", "PSK-1007"),
        ("SELECT * FROM twice(1)", "PSK-1007"),
        ("SELECT * FROM x, of_key(i)", "PSK-1012"),
        ("SELECT * FROM x AS t, LATERAL of_key(t.i)", "PSK-1012"),
        ("SELECT * FROM x, LATERAL of_key(k)", "PSK-1012"),
        ("SELECT * FROM of_key(1) WITH ORDINALITY", "PSK-1012"),
    ],
)
def test_calls_in_from_that_are_refused(query: str, code: str) -> None:
    with pytest.raises(PenstockError, match=code):
        _from(query)
