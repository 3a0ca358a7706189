from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.effort import times
from tests.unit.log.crashing import RARE, THREADS
from tests.unit.log.rows import SCHEMA

from penstock.log import Log

ROOT = Path(__file__).parents[3]
SEGMENT_BYTES = 64 << 10


def acknowledged_until_killed(folder: Path, lines: int) -> list[tuple[int, int, int]]:
    """Runs the process, kills it once it has acknowledged some commits, and returns all that it acknowledged."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.log.crashing", str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        found = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        found += process.stdout.readlines()
    acknowledged = [tuple(int(n) for n in line.split()) for line in found if line.endswith("\n")]
    return [(thread, key, lsn) for thread, key, lsn in acknowledged]


def test_acknowledged_commits_survive_a_kill(tmp_path: Path) -> None:
    chance = random.Random(7)
    counts = dict.fromkeys(range(THREADS), 0)
    head = 0
    for _ in range(times(2)):
        acknowledged = acknowledged_until_killed(tmp_path, chance.randrange(1, 300))
        log = Log.open(tmp_path, segment_bytes=SEGMENT_BYTES)
        assert log.head >= max(lsn for _, _, lsn in acknowledged) > head
        head = log.head
        for thread in range(THREADS):
            counts[thread] = max([counts[thread], *(key + 1 for t, key, _ in acknowledged if t == thread)])
            # At most the one commit that a thread was waiting for is there without having been acknowledged.
            assert log.epoch(thread) - counts[thread] in (0, 1)
            counts[thread] = log.epoch(thread)
            one, other = log.entries(thread), log.entries(thread + 10)
            assert log.epoch(thread + 10) == log.epoch(thread) and log.watermark(thread) in (None, counts[thread] - 1)
            assert [e.lsn for e in one] == [e.lsn for e in other]
            by_lsn = {e.lsn: (log.read(e, SCHEMA), log.read(o, SCHEMA)) for e, o in zip(one, other, strict=True)}
            assert all(a["k"] == b["k"] for a, b in by_lsn.values())
            present = [a["k"].to_pylist()[0] for a, _ in by_lsn.values()]
            assert present == list(range(counts[thread] - len(present), counts[thread]))
            needed = [(key, lsn) for t, key, lsn in acknowledged if t == thread and lsn > head - 60]
            assert all(by_lsn[lsn][0]["k"].to_pylist() == [key] for key, lsn in needed)
            rare = [k for e in log.entries(thread + 20) for k in log.read(e, SCHEMA)["k"].to_pylist()]
            assert rare == list(range(0, counts[thread], RARE))
        log.close()
    # The last process may have been killed before it trimmed.
    log = Log.open(tmp_path, segment_bytes=SEGMENT_BYTES)
    log.trim({o: log.head - 60 for thread in range(THREADS) for o in (thread, thread + 10)})
    log.close()
    first = min((tmp_path / "log").glob("*.seg"))
    assert first.stat().st_blocks * 512 < SEGMENT_BYTES // 2, (
        "the oldest segment, of which only rare rows are needed, is thinned out"
    )
