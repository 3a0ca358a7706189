"""ALTER TABLE, RENAME TO and COMMENT ON: what changes, what is refused, and the same after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import Opener

import penstock
from penstock.errors import PenstockError


def _refused(db: penstock.Database, sql: str, code: str, words: str = "") -> None:
    with pytest.raises(PenstockError) as caught:
        db.execute(sql)
    assert caught.value.code == code, caught.value
    assert words in caught.value.detail


def _described(db: penstock.Database, name: str) -> list[tuple[object, ...]]:
    return [(r[0], r[1], r[2], r[3], r[5]) for r in db.sql(f"DESCRIBE {name}").fetchall()]


def test_columns_names_and_comments(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "db")
    db.execute("""
        CREATE TABLE t (id INT PRIMARY KEY, a STRING, b DOUBLE NOT NULL) WITH (retain_history = '1mb');
        INSERT INTO t VALUES (1, 'x', 1.5), (2, 'y', 2.5);
        COMMENT ON TABLE t IS 'what there is';
        COMMENT ON COLUMN t.A IS 'it is a';
        ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7;
        ALTER TABLE t RENAME COLUMN a TO label;
        ALTER TABLE t RENAME COLUMN id TO `key`;
        ALTER TABLE t DROP COLUMN b;
        INSERT INTO t VALUES (2, 'z', 8);
        ALTER TABLE t RENAME TO things;
        CREATE SOURCE s (k STRING, n INT);
        ALTER SOURCE s RENAME TO events;
        INSERT INTO events VALUES ('a', 1), ('b', 2);
        CREATE MATERIALIZED VIEW v AS SELECT k, sum(n) AS total FROM events GROUP BY k;
        CREATE VIEW w AS SELECT * FROM v;
        COMMENT ON MATERIALIZED VIEW v IS 'sums';
        DROP VIEW w;
        FLUSH;
        ALTER MATERIALIZED VIEW v RENAME TO sums;
        INSERT INTO events VALUES ('a', 5);
    """)
    described = [
        ("key", "int", False, True, None),
        ("label", "string", True, False, "it is a"),
        ("c", "int", False, False, None),
    ]
    for again in (False, True):
        if again:
            db.close()
            db = opener(tmp_path / "db")
            db.execute("INSERT INTO events VALUES ('a', 0), ('c', 1)")
        assert _described(db, "things") == described
        assert sorted(db.sql("SELECT * FROM things").fetchall()) == [(1, "x", 7), (2, "z", 8)]
        shown = db.sql("SHOW TABLES").arrow().to_pylist()
        assert [(r["name"], r["comment"]) for r in shown] == [("things", "what there is")]
        assert [(r["name"], r["comment"]) for r in db.sql("SHOW VIEWS").arrow().to_pylist()] == [("sums", "sums")]
        created = db.sql("SHOW CREATE TABLE things").fetchall()[0][0]
        assert created == (
            "CREATE TABLE `things` (`key` INT, `label` STRING, `c` INT NOT NULL DEFAULT 7, "
            "PRIMARY KEY (`key`)) WITH (retain_history = '1mb')"
        )
        sums = dict(db.sql("SELECT * FROM sums").fetchall())
        assert sums == {"a": 6, "b": 2} | ({"c": 1} if again else {})
        _refused(db, "SELECT * FROM v", "PSK-1002")
    _refused(db, "ALTER SOURCE events RENAME TO more", "PSK-1009", "in use by sums")
    db.execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM things")
    _refused(db, "ALTER TABLE things DROP COLUMN label", "PSK-1009", "in use by n")
    db.execute("DROP MATERIALIZED VIEW n")
    _refused(db, "ALTER TABLE things DROP COLUMN `key`", "PSK-5006")
    _refused(db, "ALTER TABLE things DROP COLUMN lable", "PSK-1004")
    _refused(db, "ALTER TABLE things RENAME COLUMN c TO LABEL", "PSK-1014")
    _refused(db, "ALTER TABLE things ADD COLUMN d INT NOT NULL", "PSK-5006")
    _refused(db, "ALTER TABLE things RENAME TO events", "PSK-1003")
    _refused(db, "ALTER TABLE events RENAME TO x", "PSK-1008")
    _refused(db, "ALTER SOURCE events DROP COLUMN k", "PSK-1012")
    _refused(db, "ALTER VIEW things AS SELECT 1", "PSK-1012")
    _refused(db, "COMMENT ON COLUMN things.nothing IS 'x'", "PSK-1004")
    db.execute("COMMENT ON COLUMN things.label IS NULL; COMMENT ON TABLE things IS ''")
    assert _described(db, "things")[1][4] is None
    assert db.sql("SHOW TABLES").arrow().to_pylist()[0]["comment"] is None
