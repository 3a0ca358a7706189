"""The result of an append."""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.entry import Entry


class Commit(NamedTuple):
    """A commit in the log: its LSN, and its entries in the order of its parts."""

    lsn: int
    entries: tuple[Entry, ...]
