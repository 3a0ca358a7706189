"""Folders that versions of Penstock wrote, one archive per format, and what they have.

`python -m tests.folders` writes one with this version. An archive is written once, by the version that introduced its format, and never changed.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import penstock

ARCHIVES = Path(__file__).parent

SCRIPT = """
CREATE SOURCE s (k BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);
INSERT INTO t VALUES (1, 10), (2, 20);
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW joined AS SELECT s.v, t.v AS w FROM s JOIN t ON s.k = t.k;
CREATE MATERIALIZED VIEW windows AS
  SELECT window_start, count(*) AS n, sum(v) AS total FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW sessions AS
  SELECT k, window_start, count(*) AS n FROM s GROUP BY k, SESSION(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
CREATE STREAM even AS SELECT v FROM s WHERE v % 2 = 0;
CREATE SINK files FROM even INTO FILES (path = '${OUT}', format = 'json');
CREATE STREAM none AS SELECT v FROM s WHERE v < 0;
CREATE SINK idle FROM none INTO FILES (path = '${IDLE}', format = 'json');
"""

WRITTEN = 40
"""The rows in each folder."""


def rows(first: int, last: int) -> list[tuple[int, int, int]]:
    # Each key has a gap of more than a second after every sixth row.
    return [(n % 3, n, n * 100 + n // 18 * 2000) for n in range(first, last)]


def expected(count: int) -> dict[str, Counter[tuple[Any, ...]]]:
    given = rows(0, count)
    watermark = given[-1][2] - 1000
    keys = sorted({k for k, _, _ in given})
    by_window: dict[int, list[int]] = {}
    for _, v, ts in given:
        by_window.setdefault(ts // 1000 * 1000, []).append(v)
    sessions: list[tuple[int, int, int]] = []
    for key in keys:
        times = [ts for k, _, ts in given if k == key]
        begun = [0, *(i for i in range(1, len(times)) if times[i] - times[i - 1] > 1000), len(times)]
        for a, b in pairwise(begun):
            if times[b - 1] + 1000 <= watermark:
                sessions.append((key, times[a], b - a))
    return {
        "t": Counter([(1, 10), (2, 20)]),
        "sums": Counter((k, sum(1 for r in given if r[0] == k), sum(v for j, v, _ in given if j == k)) for k in keys),
        "joined": Counter((v, 10 * k) for k, v, _ in given if k),
        "windows": Counter((w, len(vs), sum(vs)) for w, vs in by_window.items() if w + 1000 <= watermark),
        "sessions": Counter(sessions),
        "even": Counter((v,) for _, v, _ in given if v % 2 == 0),
    }


def delivered(folder: Path) -> Counter[tuple[Any, ...]]:
    files = sorted(folder.glob("epoch-*.json"))
    return Counter((json.loads(line)["v"],) for f in files for line in f.read_text().splitlines())


def variables(root: Path) -> dict[str, str]:
    return {"variables.OUT": str(root / "out"), "variables.IDLE": str(root / "idle")}


def write(root: Path, **config: Any) -> None:
    """A database in `root / "db"`, with a checkpoint and commits after it; its sink has delivered to `root / "out"`."""
    with penstock.open(root / "db", config={"checkpoint.interval_ms": 0, **variables(root), **config}) as db:
        db.execute(SCRIPT)
        db.insert("s", rows(0, 15))
        db.flush()
        db.execute("CHECKPOINT")
        db.insert("s", rows(15, 30))
        db.flush()
        db.insert("s", rows(30, WRITTEN))


def unpack(archive: Path, to: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(to, filter="data")
