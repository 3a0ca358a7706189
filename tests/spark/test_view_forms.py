"""Views that have an order, names for their columns, or no rows of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import settle

import penstock

SETUP = """
    CREATE TABLE t (id BIGINT PRIMARY KEY, k STRING, v BIGINT);
    CREATE SOURCE s (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts);
    CREATE VIEW named (key, amount) AS WITH t AS (SELECT * FROM t WHERE v IS NOT NULL) SELECT k, v FROM t ORDER BY v DESC;
    CREATE VIEW doubled AS SELECT key, amount * 2 AS twice, (SELECT max(amount) FROM named) AS most FROM named;
    CREATE VIEW pairs AS SELECT a.id FROM s a JOIN s b ON a.id = b.id + 1;
    CREATE MATERIALIZED VIEW totals (key, total, rows) AS
      SELECT key, sum(amount), count(*) FROM named GROUP BY key ORDER BY 2 DESC NULLS LAST, key;
    CREATE MATERIALIZED VIEW firsts AS SELECT id, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3;
    CREATE MATERIALIZED VIEW tops AS SELECT key, twice - most AS gap FROM doubled WHERE twice > 2 ORDER BY abs(gap), key DESC;
"""
COMMITS = (
    "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 7), (3, 'a', 4), (4, 'c', NULL)",
    "UPDATE t SET v = v + 10 WHERE k = 'a' AND v IN (SELECT amount FROM named WHERE key = 'a')",
    "DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (5, 'b', -3), (4, 'c', 3)",
    "DELETE FROM t WHERE v > (SELECT min(twice) FROM doubled)",
)
SAME = {
    "SELECT * FROM totals": """
        SELECT k, sum(v), count(*) FROM t WHERE v IS NOT NULL GROUP BY k ORDER BY sum(v) DESC NULLS LAST, k""",
    "SELECT rows AS total FROM totals WHERE rows > 0": """
        SELECT count(*) FROM t WHERE v IS NOT NULL GROUP BY k ORDER BY sum(v) DESC NULLS LAST, k""",
    "SELECT key FROM totals LIMIT 1": """
        SELECT k FROM t WHERE v IS NOT NULL GROUP BY k ORDER BY sum(v) DESC NULLS LAST, k LIMIT 1""",
    "SELECT * FROM tops": """
        SELECT k, v * 2 - (SELECT max(v) FROM t) AS gap FROM t WHERE v > 1 ORDER BY abs(gap), k DESC""",
    "SELECT id FROM firsts": "SELECT id FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3",
    "SELECT amount AS key FROM named n": "SELECT v FROM t WHERE v IS NOT NULL ORDER BY v DESC",
    "WITH t AS (SELECT 1 AS one) SELECT twice, most, one FROM doubled, t ORDER BY 1": """
        SELECT v * 2, (SELECT max(v) FROM t), 1 FROM t WHERE v IS NOT NULL ORDER BY v""",
}


def test_order_columns_and_named_queries_are_those_of_batch(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "forms")
    db.execute(SETUP)
    for commit in COMMITS:
        db.execute(commit)
        settle(db)
        for ours, plain in SAME.items():
            assert db.sql(ours).fetchall() == db.sql(plain).fetchall(), (commit, ours)
    db.close()
    db = opener(tmp_path / "forms")
    for ours, plain in SAME.items():
        assert db.sql(ours).fetchall() == db.sql(plain).fetchall(), ours
    shown = {r["name"]: r["kind"] for r in db.sql("SHOW VIEWS").arrow().to_pylist()}
    assert shown == {
        "named": "view", "doubled": "view", "pairs": "view", "firsts": "materialized view", "totals": "materialized view", "tops": "materialized view"
    }  # fmt: skip
    assert [r[:2] for r in db.sql("DESCRIBE doubled").fetchall()] == [
        ("key", "string"),
        ("twice", "bigint"),
        ("most", "bigint"),
    ]
    assert db.sql("SHOW CREATE VIEW named").fetchall()[0][0].startswith("CREATE VIEW named (key, amount) AS WITH")
    db.execute("INSERT INTO s VALUES (1, TIMESTAMP '2026-01-01'), (2, TIMESTAMP '2026-01-01')")
    assert db.sql("SELECT * FROM pairs").fetchall() == [(2,)]
    with db.subscribe("doubled", snapshot=True) as subscription:
        change = subscription.next(timeout=60)
        assert change is not None and change.arrow().num_rows == db.sql("SELECT * FROM doubled").arrow().num_rows
    refused(db)


def refused(db: penstock.Database) -> None:
    for sql, code, text in (
        ("DROP VIEW named", "PSK-1009", "doubled, tops, totals"),
        ("DROP TABLE t", "PSK-1009", "doubled, firsts, named, tops, totals"),
        ("DROP MATERIALIZED VIEW named", "PSK-1008", "named is a view"),
        ("CREATE OR REPLACE VIEW named AS SELECT 1 AS one", "PSK-1009", "in use"),
        ("CREATE VIEW named AS SELECT 1 AS one", "PSK-1003", "already exists"),
        ("CREATE VIEW bad AS SELECT nope FROM t", "PSK-1004", "unknown column nope"),
        ("CREATE VIEW bad AS SELECT nope(k) FROM t", "PSK-1006", "unknown function nope"),
        ("CREATE VIEW bad AS SELECT k FROM t EMIT CHANGES", "PSK-1001", "only a stream or a materialized view"),
        ("CREATE STREAM bad AS SELECT * FROM pairs", "PSK-3001", "in view pairs"),
        ("INSERT INTO named VALUES (1, 2)", "PSK-5005", "named is a view"),
        ("EXPLAIN named", "PSK-1008", "named is a view"),
        ("SELECT (WITH __view_named AS (SELECT 1 AS amount) SELECT max(amount) FROM named)", "PSK-1015", "reserved"),
    ):
        with pytest.raises(penstock.PenstockError) as caught:
            db.execute(sql)
        assert caught.value.code == code and text in caught.value.detail, (sql, str(caught.value))
    db.execute("CREATE VIEW every AS SELECT * FROM s; CREATE VIEW some AS SELECT id FROM s")
    with pytest.raises(penstock.PenstockError, match="every selects all columns of s"):
        db.execute("ALTER SOURCE s ADD COLUMN extra BIGINT")
    db.execute("DROP VIEW every; ALTER SOURCE s ADD COLUMN extra BIGINT; DROP VIEW named CASCADE")
    assert {r[0] for r in db.sql("SHOW VIEWS").fetchall()} == {"firsts", "pairs", "some"}
