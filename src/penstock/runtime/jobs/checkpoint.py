"""Reads the checkpoint of a query that is not running."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.errors import fail


def begun(job: Path) -> bool:
    """True if a checkpoint has an epoch: in Spark's offset log, or, of a shared job, in a file of its own that can be read."""
    return bool(_numbers(job / "checkpoint" / "offsets")) or _whole(job / "checkpoint" / "epoch")


def _whole(path: Path) -> bool:
    try:
        return "version" in json.loads(path.read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def reached(job: Path, slot: int, recorded: int) -> int | None:
    """The LSN up to which a member of a shared job that does not work now has read; None if it has not begun.

    `recorded` is the number of the newest epoch of the job in the log; -1 if there is none.
    """
    path = job / "checkpoint" / "epoch"
    try:
        epoch = json.loads(path.read_bytes())
        done = "after" in epoch or recorded >= int(epoch["epoch"])
        offset = json.loads(epoch["end" if done else "start"])
        return int(offset["lsn"]) if int(offset.get("roster", 0)) >= slot else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise fail(
            "PSK-6003",
            f"{path} is damaged, so the position of the query is unknown.",
            hint="Drop the query and create it again.",
        ) from why


def _numbers(folder: Path) -> list[int]:
    return [int(f.name) for f in folder.glob("*") if f.name.isdecimal()]
