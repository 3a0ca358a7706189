"""Everything that reads contents as a whole, over contents that are on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from tests.spark.conftest import CONFIG, Opener

COUNT = 3000


def test_whoever_reads_contents_reads_them_from_disk(opener: Opener, tmp_path: Path) -> None:
    config = {**CONFIG, "serve.object_memory": "4kb", "access.paths": [str(tmp_path)]}
    data = tmp_path / "db"
    with opener(data, config=config) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
        db.execute("CREATE MATERIALIZED VIEW early AS SELECT k % 10 AS k, count(*) AS n FROM t GROUP BY k % 10")
        db.insert("t", pa.table({"k": range(COUNT), "v": [f"value {k}" for k in range(COUNT)]}))
        db.execute("UPDATE t SET v = 'new' WHERE k = 7; DELETE FROM t WHERE k = 8")
        # A query that begins now begins with the contents; the join and the group are keyed, the third is not.
        db.execute("CREATE MATERIALIZED VIEW late AS SELECT k % 10 AS k, count(*) AS n FROM t GROUP BY k % 10")
        db.execute("CREATE MATERIALIZED VIEW copy AS SELECT k, v FROM t WHERE k >= 0")
        want = sorted((k, 299 if k == 8 else 300) for k in range(10))
        for view in ("early", "late"):
            assert sorted(db.sql(f"SELECT * FROM {view}").fetchall()) == want
        for name in ("t", "copy"):
            rows = dict(db.sql(f"SELECT k, v FROM {name}").fetchall())
            assert len(rows) == COUNT - 1 and rows[7] == "new" and 8 not in rows
            # By Spark, because DuckDB's answer could differ.
            assert db.sql(f"SELECT count(DISTINCT reverse(v)) FROM {name}").fetchall() == [(COUNT - 1,)]
            assert db.sql(f"SELECT v FROM {name} WHERE k = 11").fetchall() == [("value 11",)]
        with db.subscribe("copy", snapshot=True) as changes:
            first = changes.next(60)
            assert first is not None and first.kind == "snapshot" and first.arrow().num_rows == COUNT - 1
        number = db.checkpoint()
        db.execute("DELETE FROM t WHERE k < 1000")
        db.execute("DROP MATERIALIZED VIEW early; DROP MATERIALIZED VIEW late; DROP MATERIALIZED VIEW copy")
        db.execute("ALTER TABLE t ADD COLUMN w BIGINT DEFAULT 5")
        assert db.sql("SELECT count(*), sum(w), min(k) FROM t").fetchall() == [(2000, 10_000, 1000)]
        assert {f.suffix for f in data.glob("views/*/*")} == {".seg", ".json"}
        db.restore(number)
        assert dict(db.sql("SELECT k, v FROM t").fetchall()) == rows
        assert sorted(db.sql("SELECT * FROM early").fetchall()) == want
    with opener(data, config=config) as db:
        assert dict(db.sql("SELECT k, v FROM copy").fetchall()) == rows
        db.execute(
            "DROP MATERIALIZED VIEW early; DROP MATERIALIZED VIEW late; DROP MATERIALIZED VIEW copy; DROP TABLE t"
        )
        assert not list(data.glob("views/*"))
