"""Reads the checkpoint of a query that is not running."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.errors import fail


def begun(job: Path) -> bool:
    """True if a checkpoint has an epoch: in Spark's offset log, or, of a shared job of keyed queries, in a file of its own that can be read."""
    return bool(_numbers(job / "checkpoint" / "offsets")) or _whole(job / "checkpoint" / "epoch")


def _whole(path: Path) -> bool:
    try:
        return "version" in json.loads(path.read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def reached(job: Path, recorded: int) -> int | None:
    """The LSN up to which the epochs of a stopped query are in the log; None if none of them is.

    `recorded` is the number of the newest epoch in the log, which Spark need not have committed; -1 if there is none. An epoch that is neither
    recorded nor committed has emitted nothing, and may be recomputed.
    """
    last = max([recorded, *_numbers(job / "checkpoint" / "commits")])
    if last < 0:
        return None
    path = job / "checkpoint" / "offsets" / str(last)
    try:
        lines = path.read_text().splitlines()
        # A header, settings, and the offset of each scan; those of one epoch are the same.
        return max(int(json.loads(line)["lsn"]) for line in lines[2:] if line.startswith("{"))
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise fail(
            "PSK-6003",
            f"{path} is missing or damaged, so the position of the query is unknown.",
            hint="Drop the query and create it again.",
        ) from why


def _numbers(folder: Path) -> list[int]:
    return [int(f.name) for f in folder.glob("*") if f.name.isdecimal()]
