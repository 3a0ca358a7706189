"""A database that is taken back to a checkpoint, compared with one that was stopped there, and again after the same rows."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from tests.spark.conftest import CONFIG, Opener
from tests.spark.damaging import SCRIPT, delivered, rows

from penstock import Database

NAMES = ("s", "t", "sums", "windows", "even", "joined", "top", "gone")


def everything(db: Database, out: Path) -> dict[str, Counter[object]]:
    found: dict[str, Counter[object]] = {
        name: Counter(db.sql(f"SELECT * FROM {name}").fetchall()) for name in NAMES if name != "s"
    }
    found["s"] = Counter(db.sql("SELECT k, v, ts FROM even_keys").fetchall())
    db.flush(timeout=120)
    return found | {"files": Counter(delivered(out))}


def push(db: Database, first: int, last: int) -> None:
    db.source("s").insert(rows(first, last))
    db.execute(f"INSERT INTO t VALUES ({first}, {last})")
    db.flush(timeout=120)


def test_it_is_as_if_stopped_there(opener: Opener, tmp_path: Path) -> None:
    data, twin, out, twin_out = tmp_path / "db", tmp_path / "twin", tmp_path / "out", tmp_path / "twin_out"
    config = {**CONFIG, "checkpoint.interval_ms": 0}
    db = opener(data, config=config)
    db.execute(f"""
        {SCRIPT}
        CREATE STREAM even_keys AS SELECT k, v, ts FROM s WHERE k % 2 = 0;
        CREATE MATERIALIZED VIEW top AS SELECT k, v FROM s ORDER BY v DESC LIMIT 3;
        CREATE TABLE gone (k BIGINT PRIMARY KEY);
        INSERT INTO gone VALUES (1), (2);
        CREATE SINK files FROM even INTO FILES (path = '{out}', format = 'json')
    """)
    for first in (0, 20):
        push(db, first + 10, first + 30)
    saved = db.checkpoint()
    db.close()
    # The twin delivers elsewhere.
    shutil.copytree(data, twin)
    shutil.copytree(out, twin_out)
    catalog = twin / "catalog.json"
    stopped = opener(data, config=config)
    expected = everything(stopped, out)
    stopped.close()

    db = opener(data, config=config)
    live = db.subscribe("sums", snapshot=True)
    assert live.next(60).kind == "snapshot"  # type: ignore[union-attr]
    push(db, 50, 70)
    db.execute("DELETE FROM t WHERE k = 1; DROP TABLE gone; CREATE MATERIALIZED VIEW later AS SELECT k FROM t")
    db.flush(timeout=120)
    last = db.sql("SHOW CHECKPOINTS").fetchall()[-1]
    assert last[0] >= saved
    done = db.restore(saved)
    assert everything(db, out) == expected
    while (change := live.next(60)) is not None and change.kind != "resync":
        pass
    assert change is not None and f"checkpoint {saved}" in str(change.reason) and change.table.num_rows == 3
    assert "later" not in [s.name for s in db.status()]
    push(db, 70, 90)
    restored = everything(db, out)
    db.close()
    # The same rows after the same moment, without a restore.
    assert catalog.exists()
    shutil.rmtree(data)
    shutil.rmtree(out)
    shutil.move(twin, data)
    shutil.move(twin_out, out)
    db = opener(data, config=config)
    push(db, 70, 90)
    assert everything(db, out) == restored
    assert done.backup is not None
