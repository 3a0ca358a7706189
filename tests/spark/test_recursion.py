"""WITH RECURSIVE as live views over changing tables, against DuckDB after each change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.duck_model import Measured
from tests.spark.following import SOON_S

import penstock

TABLES = [
    "CREATE TABLE e (id INT, src INT, dst INT, PRIMARY KEY (id))",
    "CREATE TABLE person (id INT, boss INT, name STRING, PRIMARY KEY (id))",
]
VIEWS = {
    "closure": "WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM e UNION SELECT r.a, e.dst FROM r JOIN e ON e.src = r.b) "
    "SELECT a, b FROM r",
    "reached": "WITH RECURSIVE r AS (SELECT 0 AS n UNION SELECT e.dst FROM r, e WHERE e.src = r.n AND e.dst < 9) "
    "SELECT count(*) AS c, max(n) AS m FROM r",
    "walks": "WITH RECURSIVE r(a, b, d) AS (SELECT src, dst, 1 FROM e WHERE src < 3 UNION ALL "
    "SELECT r.a, e.dst, r.d + 1 FROM e JOIN r ON e.src = r.b WHERE r.d < 4) SELECT a, b, d FROM r",
    "chart": "WITH RECURSIVE r(id, depth, path) AS (SELECT id, 0, name FROM person WHERE boss IS NULL UNION ALL "
    "SELECT p.id, r.depth + 1, concat(r.path, '/', p.name) FROM r JOIN person p ON p.boss = r.id) SELECT * FROM r",
    "counting": "WITH RECURSIVE r(n, s) AS (SELECT 1, 0 UNION ALL SELECT n + 1, s + n FROM r WHERE n < 20) "
    "SELECT r.n, r.s, e.dst FROM r JOIN e ON e.src = r.n",
}


def edges(chance: random.Random, count: int) -> str:
    rows = [f"({chance.randrange(14)}, {chance.randrange(7)}, {chance.randrange(7)})" for _ in range(count)]
    return f"INSERT INTO e VALUES {', '.join({r.split(',')[0]: r for r in rows}.values())}"


def test_recursive_views_follow_their_tables(interpreted: Opener, tmp_path: Path) -> None:
    both = Measured(interpreted, tmp_path, TABLES, VIEWS)
    rows = both.do(
        "INSERT INTO e VALUES (1, 0, 1), (2, 1, 2), (3, 2, 3), (4, 3, 1), (5, 4, 5); "
        "INSERT INTO person VALUES (1, NULL, 'ann'), (2, 1, 'bob'), (3, 2, 'cem'), (4, 2, 'dan')"
    )
    # Each of 0 to 3 reaches 1, 2 and 3; 4 reaches 5.
    assert (rows["closure"], rows["chart"]) == (13, 4)
    both.do("DELETE FROM e WHERE id = 1")  # the cycle 1 → 2 → 3 → 1 is not reached from 0 any more
    both.do("INSERT INTO e VALUES (1, 0, 3), (6, 5, 1), (7, 0, 3); UPDATE person SET boss = 1 WHERE id = 4")
    both.reopen()
    both.do("DELETE FROM e WHERE id IN (2, 7); UPDATE person SET boss = 4, name = 'bo' WHERE id = 2")
    chance = random.Random(7)
    for _ in range(2):
        both.do(f"{edges(chance, 6)}; DELETE FROM e WHERE id % 7 = {chance.randrange(7)}")
    rows = both.do("DELETE FROM e; DELETE FROM person WHERE boss IS NULL")
    assert rows == {"closure": 0, "reached": 1, "walks": 0, "chart": 0, "counting": 0}
    both.do(edges(chance, 12))
    both.close()


def test_a_recursion_without_end_faults_its_view_alone(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE e (src INT, dst INT, PRIMARY KEY (src, dst));
        CREATE MATERIALIZED VIEW walks AS
          WITH RECURSIVE r(n, d) AS (SELECT 0, 0 UNION ALL SELECT e.dst, r.d + 1 FROM r JOIN e ON e.src = r.n) SELECT * FROM r
          WITH (max_depth = 50);
        CREATE MATERIALIZED VIEW nodes AS
          WITH RECURSIVE r(n) AS (SELECT 0 UNION SELECT e.dst FROM r JOIN e ON e.src = r.n) SELECT * FROM r;
        INSERT INTO e VALUES (0, 1), (1, 2);
    """)
    db.flush(timeout=SOON_S)
    assert sorted(db.sql("SELECT n, d FROM walks").fetchall()) == [(0, 0), (1, 1), (2, 2)]
    follower = db.subscribe("walks")
    db.execute("INSERT INTO e VALUES (2, 0)")
    with pytest.raises(penstock.PenstockError, match=r"PSK-4003.*deeper than 50 steps"):
        follower.next(timeout=SOON_S)
    with pytest.raises(penstock.PenstockError, match=r"PSK-7006.*walks: the recursion goes deeper than 50 steps"):
        db.flush(timeout=SOON_S)
    assert [s.name for s in db.status() if s.error] == ["walks"]
    assert sorted(db.sql("SELECT n FROM nodes").fetchall()) == [(0,), (1,), (2,)]


def test_a_recursive_select_goes_deeper_than_the_default_of_spark(db: penstock.Database) -> None:
    steps = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 150) SELECT count(*) FROM r"
    assert db.sql(steps).fetchall() == [(150,)]
