"""A subscriber that does not read, or is abandoned, blocks nothing and loses nothing that the log retains."""

from __future__ import annotations

import gc
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import SOON_S, Follower, rows_of, until

import penstock

TABLES = """
CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);
CREATE TABLE other (k BIGINT PRIMARY KEY);
CREATE MATERIALIZED VIEW sums AS SELECT k % 2 AS g, sum(v) AS total FROM t GROUP BY k % 2;
"""


def folded(changes: list[penstock.Change]) -> Counter[tuple[object, ...]]:
    """What a subscriber knows after some changes, which must follow one another."""
    state: Counter[tuple[object, ...]] = Counter()
    for i, change in enumerate(changes):
        assert change.seq == i + 1
        assert i == 0 or change.prev_lsn == changes[i - 1].lsn
        if change.kind in ("snapshot", "resync"):
            state.clear()
        for *row, weight in rows_of(change):
            state[tuple(row)] += weight
    return +state


@pytest.mark.parametrize("policy", ["block", "coalesce", "latest", "resync", "disconnect"])
def test_nobody_waits_for_a_subscriber_that_does_not_read(db: penstock.Database, policy: str) -> None:
    db.execute(TABLES)
    stalled = [db.subscribe(name, policy=policy, buffer_bytes=1) for name in ("t", "sums")]  # type: ignore[arg-type]
    for i in range(5):
        db.insert("t", [(i, i), (i + 100, 1)])
        db.insert("other", [(i,)])
        db.flush(timeout=SOON_S)
    db.execute("CHECKPOINT")
    db.execute("CREATE MATERIALIZED VIEW more AS SELECT count(*) AS n FROM t")
    db.execute("DELETE FROM t WHERE k = 0")
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT n FROM more").fetchall() == [(9,)]
    db.execute("DROP MATERIALIZED VIEW more")
    if policy in ("block", "coalesce", "resync"):
        for sub, name in zip(stalled, ("t", "sums"), strict=True):
            changes = []
            while (change := sub.next(timeout=0)) is not None:
                changes.append(change)
            assert folded(changes) == Counter(db.sql(f"SELECT * FROM {name}").fetchall())
            assert ("resync" in [c.kind for c in changes]) == (policy == "resync")
    db.execute("DROP TABLE t CASCADE")
    db.close()


def test_what_is_no_longer_retained_is_a_resync(opener: Opener, tmp_path: Path) -> None:
    db = opener(config={**CONFIG, "log.segment_bytes": 4096})
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING) WITH (retain_history = '1kb')")
    stalled = Follower(db, "t", buffer_bytes=1)
    for i in range(40):
        db.insert("t", [(i % 5, f"{i:0400d}")])
    db._engine.ticker.trim()
    changes = stalled.changes()
    assert [c.kind for c in changes] == ["changes", "resync"]
    assert changes[1].reason is not None
    rows = Counter(db.sql("SELECT * FROM t").fetchall())
    assert folded(changes) == rows and len(rows) == 5
    # A sink that is made now begins with all rows as well, and not in the middle of the changes.
    db.execute(f"CREATE SINK out FROM t INTO FILES (path = '{tmp_path}', format = 'json', changelog = true)")
    db.execute("DELETE FROM t WHERE k = 0")
    db.flush(timeout=SOON_S)
    sunk: Counter[tuple[object, ...]] = Counter()
    for file in sorted(tmp_path.glob("*.json")):
        for line in map(json.loads, file.read_text().splitlines()):
            sunk[line["k"], line["v"]] += line["__weight"]
    assert {row: n for row, n in sunk.items() if n} == Counter(db.sql("SELECT * FROM t").fetchall())


def test_a_select_that_nobody_follows_any_more_ends(db: penstock.Database) -> None:
    db.execute(TABLES)
    queries = [r[0] for r in db.sql("SHOW QUERIES").fetchall()]
    sub = db.subscribe("SELECT k, count(*) AS n FROM t GROUP BY k")
    assert len(db.sql("SHOW QUERIES")) == len(queries) + 1
    del sub
    gc.collect()
    until(lambda: [r[0] for r in db.sql("SHOW QUERIES").fetchall()] == queries)
    with pytest.raises(penstock.PenstockError, match="PSK-1011"):
        db.subscribe("SELECT v FROM t", envelope="upsert")
    assert [r[0] for r in db.sql("SHOW QUERIES").fetchall()] == queries


def test_contents_beyond_the_memory_limit_can_be_asked_but_not_taken_out(opener: Opener, tmp_path: Path) -> None:
    config = {**CONFIG, "serve.memory_limit": "40mb"}
    db = opener(tmp_path / "data", config=config)
    db.execute("CREATE TABLE t (k BIGINT, v STRING)")
    rows = 100_000
    db.insert("t", pa.table({"k": range(rows), "v": [f"{i:0600d}" for i in range(rows)]}))
    for _ in range(2):
        with pytest.raises(penstock.PenstockError, match="PSK-7009"):
            db.sql("SELECT * FROM t")
        assert db.sql("SELECT count(*), max(k) FROM t").fetchall() == [(rows, rows - 1)]
        db.close()
        assert not (tmp_path / "data" / "spill").exists()
        db = opener(tmp_path / "data", config=config)
