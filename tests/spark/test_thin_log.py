"""A table that changes rarely beside a busy source keeps its own rows in the log, and not the segments that they are in."""

from __future__ import annotations

from pathlib import Path

from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import SOON_S
from tests.spark.test_retention import trim


def on_disk(log: Path) -> int:
    return sum(f.stat().st_blocks * 512 for f in sorted(log.glob("*.seg"))[:-1])


def test_queries_go_on_over_segments_that_were_thinned_out(opener: Opener, tmp_path: Path) -> None:
    config = {**CONFIG, "log.segment_bytes": 262_144, "checkpoint.max_retained": 1}
    db = opener(tmp_path / "data", config=config)
    db.execute("""
        CREATE SOURCE s (k BIGINT, text STRING) WITH (retain_history = '8kb');
        CREATE TABLE names (k BIGINT PRIMARY KEY, name STRING);
        CREATE MATERIALIZED VIEW counted AS
          SELECT n.name, count(*) AS c FROM s JOIN names n ON s.k = n.k GROUP BY n.name WITH (retain_history = '8kb');
    """)
    log = tmp_path / "data" / "log"
    for i in range(10):
        db.execute(f"INSERT INTO names VALUES ({i}, 'name {i}')")
        for _ in range(4):
            db.insert("s", [(k, "x" * 2000) for k in range(40)])
        db.flush(timeout=SOON_S)
        trim(db)
        trim(db)
    # The rows of names are retained, in segments of which little else is left.
    assert len(list(log.glob("*.seg"))) > 8
    assert on_disk(log) < 1_000_000 < sum(f.stat().st_size for f in log.glob("*.seg"))
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT count(*) AS c, min(name) AS first FROM names")
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT c, first FROM later").fetchall() == [(10, "name 0")]
    expected = [(f"name {i}", 40) for i in range(10)]
    assert sorted(db.sql("SELECT name, c FROM counted").fetchall()) == expected
    db.close()
    db = opener(tmp_path / "data", config=config)
    db.insert("s", [(3, "y")])
    db.flush(timeout=SOON_S)
    expected[3] = ("name 3", 41)
    assert sorted(db.sql("SELECT name, c FROM counted").fetchall()) == expected
    assert db.sql("SELECT c, first FROM later").fetchall() == [(10, "name 0")]
