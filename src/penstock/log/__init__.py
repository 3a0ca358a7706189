"""The commit log: all input of the database and all output of its queries, in one sequence."""

from __future__ import annotations

from penstock.log.commit import Commit
from penstock.log.entry import Entry
from penstock.log.holding import Holding, Kept
from penstock.log.log import Log
from penstock.log.part import Part
from penstock.log.pinned import Pinned
from penstock.log.restart import go_on_after
from penstock.log.state import Covered
from penstock.log.writer import Mode

__all__ = [
    "Commit",
    "Covered",
    "Entry",
    "Holding",
    "Kept",
    "Log",
    "Mode",
    "Part",
    "Pinned",
    "go_on_after",
]
