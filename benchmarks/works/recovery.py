"""From the start of a process to the first result of a database that has state, or a long log, beside one that is empty. `python -m benchmarks.works.recovery FOLDER` is one start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.data import START_MS, Shape, late_row
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work
from benchmarks.works.cold import age

SCRIPT = f"""
{penstock.SOURCE.format(name="s")} WITH (retain_history = '100gb');
CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
"""


def with_penstock(quick: bool) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    keys, few, many = (60_000, 200_000, 2_000_000) if quick else (600_000, 5_000_000, 50_000_000)
    shapes = {
        "plain": None,
        "state": Shape(keys * 2, keys=keys, batch=min(keys, 500_000)),
        "short": Shape(few),
        "long": Shape(many),
    }
    try:
        for name, shape in shapes.items():
            _build(folder / name, shape)
        found: Figures = {name: [] for name in shapes}
        for _ in range(2 if quick else 5):
            for name in shapes:
                found[name].append(_start(folder / name))
        middle = {name: float(np.median(seconds)) for name, seconds in found.items()}
        found["state_ratio"] = [middle["state"] / middle["plain"]]
        found["long_ratio"] = [middle["long"] / middle["plain"]]
        found["history_ratio"] = [middle["long"] / middle["short"]]
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(folder: Path, shape: Shape | None) -> None:
    import penstock as api

    with api.open(folder, master=penstock.MASTER) as db:
        db.execute(SCRIPT)
        for batch in shape.batches() if shape is not None else ():
            db.insert("s", batch)
        while True:
            db.insert("s", late_row(START_MS))
            db.flush()
            # A database that has run for some time has a snapshot of its state, however long its log is; the first one that a process reads costs it a second.
            if shape is None or next(folder.glob("jobs/**/state/**/*.zip"), None) is not None:
                return
            time.sleep(0.2)


def _start(folder: Path) -> float:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "benchmarks.works.recovery", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def main() -> None:
    import penstock as api

    with api.open(Path(sys.argv[1]), master=penstock.MASTER) as db:
        db.insert("s", late_row(START_MS))
        db.sql("SELECT n FROM totals WHERE k = 0").fetchall()
        sys.stdout.write(f"{age()}\n")


WORK = Work(
    name="recovery",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("new process to first result, empty folder", "plain", "s", better="less", digits=1),
        Row("the same, 600,000 keys of state", "state", "s", better="less", digits=1),
        Row("as a multiple of an empty one", "state_ratio", "x", (AtMost(2.0),), better="less"),
        Row("the same, 50 M rows in the log", "long", "s", better="less", digits=1),
        Row("as a multiple of an empty one", "long_ratio", "x", (AtMost(2.0),), better="less"),
        Row("as a multiple of a tenth of the history", "history_ratio", "x", (AtMost(1.2),), better="less"),
    ),
    repeats=1,
    timeout_s=1800.0,
)


if __name__ == "__main__":
    main()
