"""Statements whose meaning was once changed on their way to Spark: each is right, or refused, in a view and in a one-shot SELECT alike."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from tests.spark.conftest import CONFIG, opening
from tests.spark.following import SOON_S

import penstock

ROWS = [("x", 3, 0), ("y", 1, 10), ("z", 2, 5), (None, 4, None)]


@pytest.fixture(scope="module")
def db(first_database: penstock.Database) -> Iterator[penstock.Database]:
    with opening(CONFIG) as opener:
        made = opener()
        made.execute("CREATE TABLE t (a STRING, d INT, n INT)")
        made.insert("t", ROWS)
        yield made


VALUES: list[tuple[str, object]] = [
    ("array_agg(a ORDER BY d)", ["y", "z", "x"]),
    ("array_agg(a ORDER BY d DESC)", ["x", "z", "y"]),
    ("array_agg(a ORDER BY n DESC NULLS FIRST, d)", ["y", "z", "x"]),
    ("array_agg(DISTINCT a ORDER BY a DESC)", ["z", "y", "x"]),
    ("array_agg(a ORDER BY d) FILTER (WHERE d > 1)", ["z", "x"]),
    ("string_agg(a, '' ORDER BY a)", "xyz"),
    ("listagg(a, '-') WITHIN GROUP (ORDER BY d DESC)", "x-z-y"),
    ("string_agg(a, ', ' ORDER BY d)", "y, z, x"),
    ("percentile_cont(0.25) WITHIN GROUP (ORDER BY n)", 2.5),
    ("max(decode(d, 1, 'Critical', 2, 'High', 'none'))", "none"),
    ("max(X 'F0')", b"\xf0"),
    ("max((d + 13) >>> 1)", 8),
    ("max(instr('abcabc', 'bc'))", 2),
    ("max(levenshtein('kitten', 'sitting', 2))", -1),
    ("max(extract(week FROM DATE '2019-08-12'))", 33),
    ("max(date_add(DATE '2024-01-31', d))", dt.date(2024, 2, 4)),
    ("max(2147483648L)", 2147483648),
    ("max(r'a\\nb')", "a\\nb"),
    ("count_if(a IS NOT NULL)", 3),
    ("max(map('k', d)['k'])", 4),
    ("max(array(d, 7)[0])", 4),
    ("max_by(a, d, 2)", [None, "x"]),
]


def test_values_are_those_that_were_asked_for(db: penstock.Database) -> None:
    """In a one-shot SELECT and in a view."""
    query = "SELECT " + ", ".join(f"{expression} AS v{i}" for i, (expression, _) in enumerate(VALUES)) + " FROM t"
    db.execute(f"CREATE MATERIALIZED VIEW kept AS {query}")
    db.flush(timeout=SOON_S)
    for sql in (query, "SELECT * FROM kept"):
        (row,) = db.sql(sql).fetchall()
        assert list(zip((e for e, _ in VALUES), row, strict=True)) == VALUES
    db.execute("DROP MATERIALIZED VIEW kept")


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("first_value(a ORDER BY d DESC)", "PSK-1012"),
        ("last_value(a ORDER BY a)", "PSK-1012"),
        ("any_value(a ORDER BY a)", "PSK-1012"),
        ("max(a ORDER BY d)", "PSK-1012"),
        ("string_agg(a, a ORDER BY d)", "PSK-1007"),
        ("parse_json(a) AT TIME ZONE 'UTC'", "PSK-1001"),
        ("d SIMILAR TO 'x'", "PSK-1001"),
        ("generate_series(1, d, 1)", "PSK-1006"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(db: penstock.Database, expression: str, code: str) -> None:
    for statement in (
        f"SELECT {expression} AS v FROM t",
        f"CREATE MATERIALIZED VIEW m AS SELECT {expression} AS v FROM t",
    ):
        with pytest.raises(penstock.PenstockError) as refused:
            db.sql(statement)
        assert refused.value.code == code
        assert refused.value.position is not None


def test_results_have_every_type(db: penstock.Database) -> None:
    row = db.sql(
        "SELECT TIME '00:01:52', array(), NULL, map('a', 1), INTERVAL '1-2' YEAR TO MONTH, parse_json('1')"
    ).fetchone()
    assert row is not None
    assert row[:4] == (dt.time(0, 1, 52), [], None, {"a": 1})
    assert row[4:] == (14, 1)


def test_a_map_is_a_dict_in_python(db: penstock.Database) -> None:
    db.execute("CREATE TABLE maps (m MAP<STRING, INT>, l ARRAY<INT>)")
    db.execute("INSERT INTO maps VALUES (map('a', 1), array()), (NULL, NULL)")
    assert db.sql("SELECT m, l FROM maps WHERE NOT m IS NULL").fetchall() == [({"a": 1}, [])]
    with db.subscribe("maps", snapshot=True) as changes:
        assert {"a": 1} in [r["m"] for r in next(iter(changes)).rows()]


def test_sixty_joins_with_using(db: penstock.Database) -> None:
    for i in range(60):
        db.execute(f"CREATE TABLE j{i} (k INT, c{i} INT)")
    joins = " ".join(f"JOIN j{i} USING (k)" for i in range(1, 60))
    assert db.sql(f"SELECT count(*) FROM j0 {joins}").fetchall() == [(0,)]
