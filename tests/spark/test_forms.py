"""Other ways to write a thing give what the usual way gives."""

from __future__ import annotations

import penstock


def test_any_all_try_sum_fetch_and_quoted_keywords(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE `having` (k STRING, v BIGINT, `select` BIGINT);
        CREATE TABLE wanted (k STRING);
        CREATE MATERIALIZED VIEW found AS SELECT k, v FROM `having` WHERE k = ANY (SELECT k FROM wanted);
        CREATE MATERIALIZED VIEW others AS SELECT k, v FROM `having` WHERE k <> ALL (SELECT k FROM wanted);
        CREATE MATERIALIZED VIEW sums AS
          SELECT k, try_sum(v) AS total, try_avg(`select`) AS mean, any(v < 0) AS negative, approx_count_distinct(v, 0.01) AS n
          FROM `having` GROUP BY k;
        CREATE MATERIALIZED VIEW top AS SELECT k, v FROM `having` ORDER BY v DESC FETCH FIRST 1 ROWS ONLY;
        INSERT INTO wanted VALUES ('a'), ('c');
        INSERT INTO `having` VALUES ('a', 9223372036854775807, 1), ('a', 1, 4), ('b', 5, 6), ('b', -2, 7);
        FLUSH;
    """)
    big = 9223372036854775807
    assert sorted(db.sql("SELECT * FROM found").fetchall()) == [("a", 1), ("a", big)]
    assert sorted(db.sql("SELECT * FROM others").fetchall()) == [("b", -2), ("b", 5)]
    assert sorted(db.sql("SELECT * FROM sums").fetchall()) == [("a", None, 2.5, False, 2), ("b", 3, 6.5, True, 2)]
    assert db.sql("SELECT * FROM top").fetchall() == [("a", big)]
    assert db.sql("SELECT k FROM `having` WHERE `select` = ANY (SELECT 6)").fetchall() == [("b",)]
    db.execute("DELETE FROM `having` WHERE v = 1; FLUSH")
    assert sorted(db.sql("SELECT * FROM sums").fetchall()) == [("a", big, 1.0, False, 1), ("b", 3, 6.5, True, 2)]
