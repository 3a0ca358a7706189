"""FILTER with aggregates of which a row that is left out must not take part in the choice."""

from __future__ import annotations

import penstock

VIEW = """
CREATE MATERIALIZED VIEW m AS
SELECT g,
       min_by(v, x) FILTER (WHERE id > 1) AS least,
       max_by(v, x) FILTER (WHERE id < 3) AS most,
       first_value(v) FILTER (WHERE id > 1) AS opening,
       last_value(v) FILTER (WHERE id < 3) AS closing,
       any_value(v) FILTER (WHERE id = 2) AS some,
       max_by(v, x) FILTER (WHERE id > 9) AS nothing
FROM t GROUP BY g
"""


def _seen(db: penstock.Database) -> list[tuple[object, ...]]:
    db.flush(timeout=60)
    return db.sql("SELECT * FROM m").fetchall()


def test_over_a_table(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT, v STRING, x INT)")
    db.execute(VIEW)
    for row in [(1, 7, "a", 10), (2, 7, "b", 20), (3, 7, "c", 30)]:
        db.insert("t", [row])
    assert _seen(db) == [(7, "b", "b", "b", "b", "b", None)]
    db.execute("DELETE FROM t WHERE id = 2")
    assert _seen(db) == [(7, "c", "a", "c", "a", None, None)]
    db.insert("t", [(2, 7, None, 40)])
    assert _seen(db) == [(7, "c", None, "c", None, None, None)]


def test_over_a_source(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE t (id INT, g INT, v STRING, x INT)")
    db.execute(VIEW)
    for row in [(1, 7, "a", 10), (2, 7, None, 20), (3, 7, "c", 30)]:
        db.insert("t", [row])
    assert _seen(db) == [(7, None, None, None, None, None, None)]
    db.insert("t", [(2, 7, "d", 5)])
    assert _seen(db) == [(7, "d", None, None, "d", None, None)]
