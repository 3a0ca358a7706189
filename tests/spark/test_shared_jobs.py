"""Queries without state on one object: one job, unless they are not the same each time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.defects import break_member
from tests.spark.following import SOON_S

import penstock
from penstock.runtime.lifecycle import JobState


def test_each_row_goes_to_the_queries_that_take_it(db: penstock.Database) -> None:
    db.execute(
        """
        CREATE SOURCE s (k BIGINT, v BIGINT, name STRING);
        CREATE STREAM every AS SELECT * FROM s;
        CREATE STREAM doubled AS SELECT k, v * 2 AS w FROM s WHERE v > 1;
        CREATE STREAM shares AS SELECT k, 10 DIV v AS share FROM s WHERE v <> 0;
        CREATE STREAM chances AS SELECT k, rand() < k AS certain FROM s;
        CREATE STREAM letters AS SELECT k, c FROM s LATERAL VIEW explode(split(name, '')) AS c WHERE v = 2;
        """
    )
    by_object = {db._engine.catalog.by_id(i).name: j for i, j in db._engine.jobs.by_object.items()}
    shared = {name for name, job in by_object.items() if job is by_object["every"]}
    assert shared == {"every", "doubled", "shares", "letters"}
    db.insert("s", [(1, 0, "a"), (2, 2, "xy"), (3, None, None), (4, 5, "b")])
    db.flush()

    def rows(name: str) -> list[tuple[object, ...]]:
        return sorted(db.sql(f"SELECT * FROM {name}").fetchall(), key=repr)

    assert rows("every") == [(1, 0, "a"), (2, 2, "xy"), (3, None, None), (4, 5, "b")]
    assert rows("doubled") == [(2, 4), (4, 10)]
    assert rows("shares") == [(2, 5), (4, 2)]
    assert rows("chances") == [(1, True), (2, True), (3, True), (4, True)]
    assert rows("letters") == [(2, "x"), (2, "y")]


def test_changes_keep_their_sign(db: penstock.Database) -> None:
    db.execute(
        """
        CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT);
        CREATE MATERIALIZED VIEW small AS SELECT id, v FROM t WHERE v < 10;
        CREATE MATERIALIZED VIEW large AS SELECT id, v + 1 AS next FROM t WHERE v >= 10;
        """
    )
    db.insert("t", [(1, 5), (2, 15)])
    db.insert("t", [(1, 25), (2, 3)])
    db.flush()
    assert db.sql("SELECT * FROM small").fetchall() == [(2, 3)]
    assert db.sql("SELECT * FROM large").fetchall() == [(1, 26)]


STREAMS = {
    "odd": "SELECT k, v FROM s WHERE v % 2 = 1",
    "letters": "SELECT k, c FROM s LATERAL VIEW explode(split(name, '')) AS c",
    "places": "SELECT k, i, c FROM s LATERAL VIEW OUTER posexplode(slice(split(name, ''), 2, 9)) AS i, c",
    "both": "SELECT k FROM s WHERE v > 5 UNION ALL SELECT v FROM s WHERE k > 3",
}


def bags(db: penstock.Database) -> dict[str, Counter[tuple[object, ...]]]:
    return {name: Counter(db.sql(f"SELECT * FROM {name}").fetchall()) for name in STREAMS}


def expected(db: penstock.Database) -> dict[str, Counter[tuple[object, ...]]]:
    return {name: Counter(db.sql(select).fetchall()) for name, select in STREAMS.items()}


def test_few_rows_and_many(opener: Opener, tmp_path: Path) -> None:
    """The driver makes the rows of small epochs, tasks those of large ones; some queries begin with both."""
    db = opener(tmp_path / "db")
    db.execute("CREATE SOURCE s (k BIGINT, v BIGINT, name STRING)")
    first, *others = STREAMS
    db.execute(f"CREATE STREAM {first} AS {STREAMS[first]}")
    db.insert("s", [(1, 1, "ab"), (2, 6, ""), (7, 3, None)])
    db.flush(timeout=SOON_S)
    db.insert("s", [(k, k % 11, "xyz"[: k % 4]) for k in range(30_000)])
    for name in others:
        db.execute(f"CREATE STREAM {name} AS {STREAMS[name]}")
    db.insert("s", [(k, k % 7, "pq"[: k % 3]) for k in range(20_000)])
    db.insert("s", [(8, 8, "last")])
    db.flush(timeout=SOON_S)
    assert bags(db) == expected(db)
    assert {j.name for j in db._engine.jobs} == {"queries on s"}
    db.close()
    db = opener(tmp_path / "db")
    db.insert("s", [(9, 9, "again")])
    db.flush(timeout=SOON_S)
    assert bags(db) == expected(db)


def test_a_stream_with_a_defect_goes_on_where_it_was(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE s (k BIGINT, v BIGINT, name STRING)")
    for name, select in STREAMS.items():
        db.execute(f"CREATE STREAM {name} AS {select}")
    db.insert("s", [(1, 1, "ab"), (7, 7, "c")])
    db.flush(timeout=SOON_S)
    break_member(db, "letters", "name")
    db.insert("s", [(2, 9, "xy")])
    with pytest.raises(penstock.PenstockError, match="PSK-7006: Not everything can catch up: letters"):
        db.flush(timeout=SOON_S)
    others = {n: rows for n, rows in expected(db).items() if n != "letters"}
    assert {n: Counter(db.sql(f"SELECT * FROM {n}").fetchall()) for n in others} == others
    assert db._engine.jobs.by_object[db._object("odd").id].state is JobState.RUNNING
    db.insert("s", [(3, 8, "z")])
    db.execute("RESTART STREAM letters")
    db.flush(timeout=SOON_S)
    assert bags(db) == expected(db)
