"""Expressions are written back as they were read; `written` finds each of them, without the structure around it."""

from __future__ import annotations

import pytest

from penstock.plan.dialect import DIALECT
from penstock.sql.script import parse_script
from penstock.sql.statements import Select
from penstock.sql.written import Written, written


def tree(sql: str) -> Select:
    (statement,) = parse_script(sql)
    assert isinstance(statement, Select)
    return statement


@pytest.mark.parametrize(
    "expression",
    [
        "decode(a, 1, 'Critical', 2, 'High', 0)", "X 'F0'", "x'f0'", "8 >>> 1", "a >> 1", "a << b", "instr(s, t, 1, 2)", "max_by(a, b, 2)",
        "levenshtein(a, b, 3)", "first_value(a, TRUE)", "first(a IGNORE NULLS)", "TIME '00:01:52'", "DATE '2024-01-01'", "1L", "1.5BD", "2S", "1e3D",
        "'a\\nb'", 'r"a\\n"', "'a' 'b'", "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL 1 DAY 2 HOURS", "CAST(a AS TIME(3))", "TRY_CAST(a AS INT)",
        "CAST(a AS STRUCT<`x y`: INT>)", "EXTRACT(week FROM a)", "TRIM(BOTH 'x' FROM a)", "POSITION('a' IN s)", "SUBSTRING(a FROM 2 FOR 3)",
        "OVERLAY(a PLACING 'x' FROM 2)", "DATEADD(DAY, 1, a)", "date_add(a, -1)", "date_format(a, 'yyyy')", "element_at(a, 1)", "array(a)[0]", "a <=> b",
        "a IS NOT NULL", "NOT a IS NULL", "transform(a, x -> x + 1)", "parse_json(a)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", "current_date",
        "named_struct('a', 1)", "map('a', 1)", "struct(a AS b, 1)", "split(a, ',')", "to_date(a, 'yyyy')", "CASE WHEN a THEN 1 ELSE 2 END", "a || b",
        "from_utc_timestamp(a, 'UTC')", "f(a => 1)", "count(DISTINCT a, b)", "a LIKE 'x!_' ESCAPE '!'", "a RLIKE 'x'", "a DIV 2",
    ],
)  # fmt: skip
def test_an_expression_is_written_as_it_was(expression: str) -> None:
    item = tree(f"SELECT {expression}").query.ast.expressions[0]
    assert "".join(item.sql(dialect=DIALECT).lower().split()) == "".join(expression.lower().split())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a, 1 FROM t", [("1", "1", 10)]),
        ("SELECT lower(a) AS b FROM t WHERE a > 1", [("a > 1", "a > 1", 34), ("lower(a)", "LOWER(a)", 7)]),
        (
            "SELECT array_agg(a + 1 ORDER BY -b) FROM t",
            [("array_agg(1)", "ARRAY_AGG(1)", 7), ("a + 1", "a + 1", 17), ("-b", "-b", 32)],
        ),
        (
            "SELECT a IN (SELECT f(b) FROM u) FROM t",
            [("a IN (SELECT 1)", "a IN (SELECT 1)", 7), ("f(b)", "F(b)", 20)],
        ),
        (
            "SELECT sum(a) OVER (PARTITION BY f(b) ORDER BY c) + 1 FROM t",
            [("sum(1) + 1", "SUM(1) + 1", 7), ("sum(a)", "SUM(a)", 7), ("f(b)", "F(b)", 33)],
        ),
        ("VALUES (1, f(2))", [("1", "1", 8), ("f(2)", "F(2)", 11)]),
        (
            "SELECT k FROM TUMBLE(TABLE s, DESCRIPTOR(ts), f(1)) WHERE k > 1",
            [("DESCRIPTOR(ts)", "DESCRIPTOR(ts)", 30), ("f(1)", "F(1)", 46), ("k > 1", "k > 1", 58)],
        ),
        ("SELECT 1 = ANY (SELECT b FROM u)", [("1 = (SELECT 1)", "1 = (SELECT 1)", 7)]),
    ],
)
def test_the_parts_of_a_query(sql: str, expected: list[tuple[str, str, int]]) -> None:
    found = written(sql, tree(sql).query.ast)
    assert sorted(found) == sorted(Written(*e) for e in expected)
