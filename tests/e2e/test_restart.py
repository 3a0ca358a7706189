"""kill -9 at random moments: every acknowledged row is in every view once, and subscribers see no epoch twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.restarting import row

import penstock

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
ROOT = Path(__file__).parents[2]


def killed_after(folder: Path, first: int, rows: int) -> int:
    """Lets the process insert from `first` on and kills it once `rows` are acknowledged; the last acknowledged row."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.restarting", str(folder), str(first)],
        stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        last, lsn = first - 1, 0
        for _ in range(rows):
            n, new_lsn = (int(w) for w in process.stdout.readline().split())
            assert n == last + 1
            assert new_lsn > lsn
            last, lsn = n, new_lsn
        process.kill()
        # It may have gone on for a moment.
        for line in process.stdout:
            last = int(line.split()[0]) if line.endswith("\n") else last
        return last
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Reader:
    """A subscriber that lives through all crashes: it asks for what comes after the last epoch that it saw."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.total: Counter[tuple[Any, ...]] = Counter()

    def catch_up(self, db: penstock.Database) -> None:
        with db.subscribe(self.name, as_of=self.epoch + 1) as subscription:
            while (change := subscription.next(timeout=0)) is not None:
                assert change.kind == "changes"
                assert change.epoch > self.epoch, "an epoch came twice"
                self.epoch = change.epoch
                for values in change.rows():
                    weight = values.pop("__weight", 1)
                    self.total[tuple(values.values())] += weight
        self.total = +self.total


def killed_and_compared(folder: Path, seed: int, rounds: int) -> int:
    """Several lives of one database, each ended by a kill, each looked at by the next process. The number of rows in the end."""
    chance = random.Random(seed)
    readers = [Reader(n) for n in ("sums", "windows", "best", "overall", "deep", "even", "odd", "latest_sum")]
    stored = 0
    for _ in range(rounds):
        acknowledged = killed_after(folder, stored, chance.choice([1, 3, 10, 40, 120]))
        with penstock.open(folder, master="local[2]", config={"spark.heap": "1g"}) as db:
            db.flush()
            present = sorted(r[0] for r in db.sql("SELECT v FROM s").fetchall())
            # What was acknowledged is there. One commit more may have been durable when the process was killed.
            assert present == list(range(len(present)))
            assert len(present) - 1 in (acknowledged, acknowledged + 1)
            stored = len(present)
            check(db, stored, readers)
    return stored


def test_kill_at_random_moments(tmp_path: Path) -> None:
    assert killed_and_compared(tmp_path / "data", seed=16, rounds=2) >= 2, "each life inserts a row at least"


def check(db: penstock.Database, stored: int, readers: list[Reader]) -> None:
    rows = [row(n) for n in range(stored)]
    watermark = rows[-1][2] - 1000
    assert db.source("s").current_watermark == watermark
    assert [s.error for s in db.status() if s.error] == []

    by_key: dict[int, list[int]] = {}
    by_window: dict[int, list[int]] = {}
    by_both: dict[int, Counter[int]] = {}
    for k, v, ts in rows:
        by_key.setdefault(k, []).append(v)
        by_window.setdefault(ts // 1000 * 1000, []).append(v)
        by_both.setdefault(ts // 1000 * 1000, Counter())[k] += v
    expected = {
        "sums": {(k, len(vs), sum(vs)) for k, vs in by_key.items()},
        "windows": {(start, len(vs), sum(vs)) for start, vs in by_window.items() if start + 1000 <= watermark},
        "best": {
            (start, k, total)
            for start, totals in by_both.items()
            if start + 1000 <= watermark
            for k, total in totals.items()
            if total == max(totals.values())
        },
        "overall": {(len(by_key), sum(v for _, v, _ in rows))},
        "deep": {(n, keys, n) for n, keys in Counter(len(vs) for vs in by_key.values()).items() if n < stored},
        "even": {(v,) for _, v, _ in rows if v % 2 == 0},
        "odd": {(v, k) for k, v, _ in rows if v % 2 == 1},
        "latest_sum": {(sum(vs[-1] for vs in by_key.values()), len(by_key))},
    }
    for reader in readers:
        wanted = Counter(expected[reader.name])
        assert Counter(db.sql(f"SELECT * FROM {reader.name}").fetchall()) == wanted, reader.name
        reader.catch_up(db)
        assert reader.total == wanted, f"{reader.name}: the changes seen through all crashes do not add up"
