"""Old parts of the log are removed while the pipeline runs, and nothing that is still needed."""

from __future__ import annotations

from pathlib import Path

from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import SOON_S, Follower

import penstock

INSERTS = 1000


def size(log: Path) -> int:
    """Of all segments but the one that is written, which has its space beforehand."""
    return sum(f.stat().st_size for f in sorted(log.glob("*.seg"))[:-1])


def trim(db: penstock.Database) -> None:
    """What the ticker does from time to time: only what is in a checkpoint may leave the log."""
    db._engine.checkpoints.make()
    db._engine.ticker.trim()


def test_old_segments_go_under_a_running_pipeline(opener: Opener, tmp_path: Path) -> None:
    config = {**CONFIG, "log.segment_bytes": 16384, "checkpoint.max_retained": 1}
    db = opener(tmp_path / "data", config=config)
    db.execute(f"""
        CREATE SOURCE s (k BIGINT, text STRING) WITH (retain_history = '8kb');
        CREATE STREAM every AS SELECT k, text FROM s WITH (retain_history = '8kb');
        CREATE MATERIALIZED VIEW sums AS SELECT k % 10 AS g, count(*) AS n, max(text) AS last FROM s
          GROUP BY k % 10 WITH (retain_history = '8kb');
        CREATE SINK out FROM every INTO FILES (path = '{tmp_path / "out"}', format = 'json');
    """)
    slow = Follower(db, "every")
    log = tmp_path / "data" / "log"
    largest = 0
    for i in range(INSERTS):
        db.insert("s", [(i, f"{i:0100d}")])
        # A job releases its input when its next epoch begins, so the last rows are inserted one by one.
        if i % 200 == 199 or i >= INSERTS - 3:
            db.flush(timeout=SOON_S)
            largest = max(largest, size(log))
            trim(db)
    written = INSERTS * 400  # at least: one row, its stream's and the frames around them
    assert largest < written and size(log) < written / 2, (largest, size(log))
    assert len(list(log.iterdir())) < 20
    assert db.metrics()["s"].retained_bytes < 16384
    # The subscriber that has read nothing so far has lost nothing.
    assert sorted(r[0] for r in slow.rows()) == list(range(INSERTS))
    expected = [(g, INSERTS // 10, f"{INSERTS - 10 + g:0100d}") for g in range(10)]
    assert sorted(db.sql("SELECT g, n, last FROM sums").fetchall()) == expected
    sunk = [line for f in (tmp_path / "out").rglob("*.json") for line in f.read_text().splitlines()]
    assert len(sunk) == INSERTS
    jobs = [f for f in (tmp_path / "data" / "jobs").rglob("*") if f.is_file()]
    assert len(jobs) < 400, len(jobs)
    db.close()
    db = opener(tmp_path / "data", config=config)
    db.execute("CREATE MATERIALIZED VIEW again AS SELECT sum(n) AS n FROM sums")
    db.insert("s", [(0, "x")])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT n FROM again").fetchall() == [(INSERTS + 1,)]
