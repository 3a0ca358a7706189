"""The commit log: everything that was put into the database, and everything that its streams put out, in one sequence."""

from __future__ import annotations

from penstock.log.commit import Commit
from penstock.log.entry import Entry
from penstock.log.holding import Holding, Kept
from penstock.log.lock import FolderLock
from penstock.log.log import Log
from penstock.log.part import ExternalFile, Part
from penstock.log.writer import Mode

__all__ = ["Commit", "Entry", "ExternalFile", "FolderLock", "Holding", "Kept", "Log", "Mode", "Part"]
