"""Commits into sources with a clock of their own, as the storage makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from penstock.log import Commit, Log, Part
from penstock.runtime.storage.feed import Feed


def commit(log: Log, feeds: Mapping[int, Feed], parts: Sequence[Part]) -> Commit:
    """Appends parts with the times that their clocks give them."""
    clocks = {p.object_id: f.clock for p in parts if (f := feeds.get(p.object_id)) and f.clock is not None}
    with ExitStack() as held:
        for object_id in sorted(clocks):
            held.enter_context(clocks[object_id].lock)
        future = log.append_future([feeds[p.object_id].stamped(p) if p.object_id in clocks else p for p in parts])
    return future.result()
