"""ALTER … AS … REBUILD, on Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import penstock

SOON_S = 120.0


def test_another_query_for_the_same_readers(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE t (k STRING, v BIGINT);
        CREATE MATERIALIZED VIEW g AS SELECT k, sum(v) AS n FROM t GROUP BY k;
        CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM g;
    """)
    db.insert("t", [("a", 1), ("a", 5), ("b", 2)])
    db.flush(SOON_S)
    have: Counter[tuple[Any, ...]] = Counter()
    with db.subscribe("g", snapshot=True) as sub:
        db.execute("ALTER MATERIALIZED VIEW g AS SELECT k, max(v) AS n FROM t WHERE v > 1 GROUP BY k REBUILD")
        assert sorted(db.sql("SELECT * FROM g").fetchall()) == [("a", 5), ("b", 2)]
        assert db.sql("SELECT n FROM total").fetchall() == [(7,)]
        db.insert("t", [("a", 9)])
        assert db.sql("SELECT n FROM total").fetchall() == [(11,)]
        # Without REBUILD: the same keys and inputs.
        for sql, want in {
            "SELECT k, max(v) + 1 AS n FROM t WHERE v > 1 GROUP BY k": {("a", 10), ("b", 3)},
            "SELECT k, sum(v) AS n FROM t WHERE v > 1 GROUP BY k HAVING count(*) > 1": {("a", 14)},
        }.items():
            db.execute(f"ALTER MATERIALIZED VIEW g AS {sql}")
            assert set(db.sql("SELECT * FROM g").fetchall()) == want
            assert db.sql("SELECT n FROM total").fetchall() == [(sum(n for _, n in want),)]
        for sql in ("SELECT k, sum(v) AS n FROM t GROUP BY k", "SELECT DISTINCT k, v AS n FROM t"):
            with pytest.raises(penstock.PenstockError, match="PSK-6018"):
                db.execute(f"ALTER MATERIALIZED VIEW g AS {sql}")
        # Rows can fail in the new query, which they could not in the old one.
        db.execute("ALTER MATERIALIZED VIEW g AS SELECT k, sum(100 DIV v) AS n FROM t GROUP BY k REBUILD")
        assert sorted(db.sql("SELECT * FROM g").fetchall()) == [("a", 100 + 20 + 11), ("b", 50)]
        db.flush(SOON_S)
        while (change := sub.next(0)) is not None:
            for row in change.rows():
                have[row["k"], row["n"]] += row["__weight"]
        assert +have == Counter([("a", 131), ("b", 50)])
        assert min(have.values()) == 0
