"""Queries without state on one object: one job, unless they are not the same each time."""

from __future__ import annotations

import penstock


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
