"""A producer that is faster than the engine, for an hour (`FLOOD_SECONDS`)."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

from tests import flood

import penstock

SECONDS = float(os.environ.get("FLOOD_SECONDS", "3600"))


def test_neither_memory_nor_disk_is_filled(tmp_path: Path) -> None:
    # No other test may take so long: the limit of all would end this one.
    faulthandler.dump_traceback_later(SECONDS + 1200, exit=True)
    with penstock.open(tmp_path / "db", master="local[2]", config={"spark.heap": "1g", **flood.CONFIG}) as db:
        found = flood.flood(db, tmp_path / "db", SECONDS)
        sys.stdout.write(f"{found}\n")
        flood.check(db, found)
    for sizes in (found.python, found.jvm):
        # Once everything is warm, memory stays where it is.
        warm = max(sizes[: max(30, len(sizes) // 10)])
        assert max(sizes) <= warm + 300 * flood.MEBIBYTE, (warm, max(sizes))
