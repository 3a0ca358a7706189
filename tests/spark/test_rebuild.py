"""ALTER … AS … REBUILD, on Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

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
        # Rows can fail in the new query, which they could not in the old one.
        db.execute("ALTER MATERIALIZED VIEW g AS SELECT k, sum(100 DIV v) AS n FROM t GROUP BY k REBUILD")
        assert sorted(db.sql("SELECT * FROM g").fetchall()) == [("a", 100 + 20 + 11), ("b", 50)]
        db.flush(SOON_S)
        while (change := sub.next(0)) is not None:
            for row in change.rows():
                have[row["k"], row["n"]] += row["__weight"]
        assert +have == Counter([("a", 131), ("b", 50)])
        assert min(have.values()) == 0
