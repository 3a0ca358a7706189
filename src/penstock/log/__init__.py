"""The commit log: everything that was put into the database, and everything that its streams put out, in one sequence."""

from __future__ import annotations

from penstock.log.entry import Entry
from penstock.log.lock import FolderLock
from penstock.log.log import Log
from penstock.log.part import ExternalFile, Part
from penstock.log.writer import Mode

__all__ = ["Entry", "ExternalFile", "FolderLock", "Log", "Mode", "Part"]
