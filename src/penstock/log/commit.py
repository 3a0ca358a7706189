"""What an append returns."""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.entry import Entry


class Commit(NamedTuple):
    """A commit that is in the log: its number, and its entries in the order of the parts."""

    lsn: int
    entries: tuple[Entry, ...]
