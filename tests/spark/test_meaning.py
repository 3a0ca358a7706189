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
    ("string_agg(a ORDER BY a DESC)", "zyx"),
    ("length(string_agg(a))", 3),
    ("listagg(a) WITHIN GROUP (ORDER BY d)", "yzx"),
    ("length(listagg(a))", 3),
    ("listagg(a, '-') WITHIN GROUP (ORDER BY d DESC)", "x-z-y"),
    ("string_agg(a, ', ' ORDER BY d)", "y, z, x"),
    ("percentile_cont(0.25) WITHIN GROUP (ORDER BY n)", 2.5),
    ("max(decode(d, 1, 'Critical', 2, 'High', 'none'))", "none"),
    ("max(decode(d, 1, '12', 2, 8, 0))", 12),
    ("max(X 'F0')", b"\xf0"),
    ("max((d + 13) >>> 1)", 8),
    ("max(instr('abcabc', 'bc'))", 2),
    ("max(instr('abcabc', 'bc', 1, 2))", 5),
    ("max(TIME '00:01:52')", dt.time(0, 1, 52)),
    ("percentile_cont(0.5) WITHIN GROUP (ORDER BY n)", 5.0),
    ("max(struct(d, n)).d", 4),
    ("max((d, a)).a", None),
    ("array_agg(struct(d, a AS name) ORDER BY d)[1]", {"d": 2, "name": "z"}),
    ("max(levenshtein('kitten', 'sitting', 2))", -1),
    ("max(extract(week FROM DATE '2019-08-12'))", 33),
    ("max(date_add(DATE '2024-01-31', d))", dt.date(2024, 2, 4)),
    ("max(2147483648L)", 2147483648),
    ("max(r'a\\nb')", "a\\nb"),
    ("count_if(a IS NOT NULL)", 3),
    ("max(map('k', d)['k'])", 4),
    ("max(array(d, 7)[0])", 4),
    ("max_by(a, d, 2)", [None, "x"]),
    ("max(+n - +1)", 9),
    ("max(- + d)", -1),
    ("count_if(n > 1 IS UNKNOWN)", 1),
    ("count_if(n > 1 IS NOT UNKNOWN)", 3),
    ("struct(max(d), min(n))", {"col1": 4, "col2": 0}),
    ("(max(d), upper(min(a)))", {"col1": 4, "col2": "X"}),
    ("arrays_zip(array(max(d)), array(1))", [{"0": 4, "1": 1}]),
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


COLLATED = "a COLLATE UTF8_LCASE"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(*) AS n FROM t GROUP BY {COLLATED}",
        f"SELECT count(DISTINCT {COLLATED}) AS n FROM t",
        f"SELECT max_by(d, {COLLATED}) AS n FROM t",
        f"SELECT d FROM t ORDER BY {COLLATED} LIMIT 1",
        f"SELECT rank() OVER (ORDER BY {COLLATED}) AS n FROM t",
        "SELECT x.d FROM t x JOIN t y ON x.a COLLATE UTF8_LCASE = y.a",
    ],
)
def test_a_view_does_not_compare_by_a_collation(db: penstock.Database, query: str) -> None:
    """The kernel would compare bytes. A SELECT, and the condition of a view, is Spark's."""
    with pytest.raises(penstock.PenstockError, match=r"PSK-2011.*STRING COLLATE UTF8_LCASE") as refused:
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
    assert refused.value.position is not None
    assert db.sql(query).fetchall()


def test_results_of_two_types_have_the_one_that_spark_finds(db: penstock.Database) -> None:
    """A word is no number: the row fails, where and as it does in Spark."""
    query = "SELECT decode(d, 1, 'Critical', 2, 'High', 0) AS v FROM t"
    with pytest.raises(
        penstock.PenstockError, match=r"'(Critical|High)' of the type \"STRING\" cannot be cast to \"BIGINT\""
    ):
        db.sql(query)
    db.execute(f"CREATE MATERIALIZED VIEW decoded AS {query} ERRORS TO words")
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT v FROM decoded").fetchall() == [(0,), (0,)]
    assert db.sql("SELECT count(*) FROM words").fetchall() == [(2,)]
    db.execute("DROP MATERIALIZED VIEW decoded")


def test_grouping_by_a_map_keeps_its_nulls(db: penstock.Database) -> None:
    """Spark's generated code makes zeros of them."""
    db.execute("CREATE TABLE kept_maps (m MAP<STRING, INT>, i INT)")
    queries = (
        "SELECT m, count(*) AS n FROM kept_maps GROUP BY m",
        "SELECT struct(m, i).m, count(*) AS n FROM kept_maps GROUP BY struct(m, i)",
        "SELECT array(m)[0] AS m, count(*) AS n FROM kept_maps GROUP BY ALL",
    )
    for i, query in enumerate(queries):
        db.execute(f"CREATE MATERIALIZED VIEW by_map{i} (m, n) AS {query}")
    db.execute("INSERT INTO kept_maps VALUES (map('q', NULL), 1), (map('q', NULL), 1), (map('p', 0), 1), (NULL, 1)")
    db.flush(timeout=SOON_S)
    for i, query in enumerate(queries):
        for sql in (query, f"SELECT * FROM by_map{i}"):
            rows = sorted(db.sql(sql).fetchall(), key=repr)
            assert rows == [(None, 1), ({"p": 0}, 1), ({"q": None}, 2)], sql
        db.execute(f"DROP MATERIALIZED VIEW by_map{i}")


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
