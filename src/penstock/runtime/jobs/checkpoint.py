"""Reads the checkpoint of a query that is not running."""

from __future__ import annotations

from pathlib import Path

from penstock.disk import make_folder, write_durably
from penstock.errors import fail
from penstock.spark.offsets import epoch_in, numbered, reached_in


def begun(job: Path) -> bool:
    """True if a checkpoint has an epoch: in Spark's offset log, or, of a shared job, in a file of its own that can be read."""
    return bool(numbered(job / "checkpoint" / "offsets")) or _whole(job / "checkpoint" / "epoch")


def mark_sealed(job: Path) -> None:
    """Notes, durably and before its first epoch, that all files of a checkpoint end with their checksums."""
    make_folder(job)
    write_durably(job / "sealed", b"")


def _whole(path: Path) -> bool:
    try:
        epoch_in(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def reached(job: Path, slot: int, recorded: int) -> int | None:
    """The LSN up to which a member of a shared job that does not work now has read; None if it has not begun.

    `recorded` is how far the newest epoch of the job has read that is in the log.
    """
    path = job / "checkpoint" / "epoch"
    try:
        epoch = epoch_in(path.read_bytes())
        done = "after" in epoch or recorded >= reached_in(epoch, done=True).lsn
        found = reached_in(epoch, done=done)
        return found.lsn if found.roster >= slot else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise fail(
            "PSK-6003",
            f"{path} is damaged, so the position of the query is unknown.",
            hint="Drop the query and create it again.",
        ) from why
