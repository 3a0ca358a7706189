"""Lets a log go on after a restore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import fail
from penstock.log.floors import Abandoned, Floors
from penstock.log.log import Log
from penstock.log.segment import create_segment, list_segments


def go_on_after(database: Path, lsn: int, epochs: Mapping[int, int]) -> Abandoned:
    """The next commit of a log gets a number after `lsn`, and the next epoch of each object one after `epochs`, so that none is used twice. Returns what is skipped.

    An object that `epochs` does not have was dropped: since then it has had at most one epoch for each commit.

    The log is not open. It skips the number of a segment, because the first LSN of the next one in line must follow the last of its predecessor.
    """
    log = Log.open(database)
    try:
        with log.pinned() as pinned:
            pass
    finally:
        log.close()
    if lsn < pinned.head:
        raise fail("PSK-8001", f"The log in {database} ends with commit {pinned.head}, after {lsn}.")
    folder = database / "log"
    last = {i: max(s.epoch, epochs.get(i, s.epoch + lsn - pinned.head)) for i, s in pinned.states.items()}
    taken_back = {i: (s.epoch, last[i]) for i, s in pinned.states.items() if last[i] > s.epoch}
    # Who is at an epoch that was taken back has to be told. So there is one more, of which everybody knows that nothing is missing before it.
    states = {i: s._replace(epoch=last[i] + 1) if i in taken_back else s for i, s in pinned.states.items()}
    floors = Floors(folder)
    number, _ = list_segments(folder)[-1]
    abandoned = Abandoned(pinned.head, lsn, taken_back)
    floors.abandoned.append(abandoned)
    floors.remove([number + 1])
    create_segment(folder, number + 2, lsn + 1, states)
    floors.save()
    return abandoned
