"""Opens an existing log."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.disk import TEMPORARY, unwritable
from penstock.errors import PenstockError, fail
from penstock.log.floors import Floors
from penstock.log.frame import Frame
from penstock.log.index import Index
from penstock.log.scan import open_segment, scan_segment
from penstock.log.segment import Segment, SegmentWriter, create_segment, graves, list_segments, segment_path
from penstock.log.state import ObjectState
from penstock.log.thin import disk_bytes

_WAYS = (
    "penstock checkpoint list shows what penstock checkpoint restore can go back to. "
    "Or restore the folder from a backup, or the file alone if you have it."
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recovered log."""

    index: Index
    segments: list[Segment]
    active: SegmentWriter
    next_lsn: int


def recover(folder: Path, floors: Floors, attested: int, *, expected: bool = False) -> Recovered:
    """Builds the index from the segments, truncates an unfinished tail, and opens the last segment for writing.

    `attested` is a commit that was acknowledged: the log must reach it. `expected`: there must be a segment.
    """
    try:
        return _recover(folder, floors, attested, made=expected)
    except OSError as error:
        raise unwritable(folder, error) from error


def _recover(folder: Path, floors: Floors, attested: int, *, made: bool) -> Recovered:
    for leftover in folder.glob(f"*{TEMPORARY}"):
        leftover.unlink()
    index = Index()
    attests = graves(folder)
    buried = max((number for number, _ in attests), default=0)
    floors.remove(range(1, buried + 1))
    found = [(number, path) for number, path in list_segments(folder) if number > buried]
    if not found and attested:
        raise fail("PSK-6001", f"All segments in {folder} are missing: commits 1 to {attested} are lost.", hint=_WAYS)
    if not found and made:
        raise fail("PSK-6001", f"All segments in {folder} are missing: every commit is lost.", hint=_WAYS)
    if not found:
        segment = create_segment(folder, 1, 1, {})
        return Recovered(index, [segment], SegmentWriter(segment, segment.size), 1)
    segments: list[Segment] = []
    seen: set[int] = set()
    expected = 0
    heads = [open_segment(path, number) for number, path in found]
    _check_present(folder, floors, [(n, o.head.version) for (n, _), o in zip(found, heads, strict=True)])
    for (number, path), opened in zip(found, heads, strict=True):
        if segments:
            _check_follows(segments[-1], number, opened.first_lsn, expected)
        segment = Segment(number, path, opened.first_lsn, opened.data.size, opened.head.version)
        segments.append(segment)
        # Segments before this one may have been deleted; its head has the states of their objects.
        index.states.update({i: c for i, c in opened.head.states.items() if not floors.forgotten(i)})
        replay = _Replay(index, segment, floors)
        expected, segment.size = scan_segment(opened, replay.add, last=number == found[-1][0])
        seen |= replay.seen | opened.head.states.keys()
        if opened.map is not None:
            segment.disk_bytes, segment.holds = disk_bytes(path), frozenset(replay.seen)
        else:
            segment.disk_bytes = segment.size
    if opened.map is not None:
        raise fail("PSK-6001", f"{path} was thinned out, but the segments after it are missing.")
    if expected <= attested:
        raise fail(
            "PSK-6001",
            f"{path} is damaged at offset {segments[-1].size}: it ends with commit {expected - 1}, and commits up to {attested} were acknowledged.",
            hint=_WAYS,
        )
    floors.dropped(seen, expected - 1)
    if attests:
        for object_id in [i for i in index.states if not index.reaches_back(i, 0)]:
            floors.raise_to(object_id, heads[0].first_lsn - 1)
        # While the disk is full, the files that attest it stay.
        with suppress(PenstockError):
            floors.save()
            for path in {*(p for n, p in list_segments(folder) if n <= buried), *(p for _, p in attests)}:
                path.unlink()
    active = SegmentWriter(segments[-1], segments[-1].size)
    # Commits that were written but not synced before a crash become visible now, so they must be durable.
    active.withdraw()
    return Recovered(index, segments, active, expected)


def _check_present(folder: Path, floors: Floors, found: list[tuple[int, int]]) -> None:
    lost = floors.missing(found)
    if lost:
        names = ", ".join(segment_path(folder, n).name for n in lost[:5]) + (" …" if len(lost) > 5 else "")
        raise fail("PSK-6001", f"{folder} has lost {names}, and all commits in it.", hint=_WAYS)


def _check_follows(previous: Segment, number: int, first_lsn: int, expected: int) -> None:
    follows = previous.number + 1 == number
    if first_lsn < expected or (follows and first_lsn != expected):
        raise fail(
            "PSK-6001",
            f"{previous.path} is damaged at offset {previous.size}: it ends before commit {expected}, "
            f"and segment {number} begins with {first_lsn}.",
        )


class _Replay:
    """Indexes the frames of a segment."""

    def __init__(self, index: Index, segment: Segment, floors: Floors) -> None:
        self._index = index
        self._segment = segment
        self._floors = floors
        self.seen: set[int] = set()

    def add(self, payload: int, frame: Frame) -> None:
        object_id, states = frame.object_id, self._index.states
        self.seen.add(object_id)
        if not self._floors.forgotten(object_id):
            known = states.get(object_id, ObjectState())
            job_epoch = frame.job_epoch if frame.job_epoch >= 0 else known.job_epoch
            row_epoch = frame.epoch if frame.rows else frame.since - 1
            covers = frame.covers if frame.covers.reach else known.covers
            states[object_id] = ObjectState(frame.watermark, frame.epoch, job_epoch, row_epoch, covers)
        if frame.lsn > self._floors[object_id]:
            self._index.add(payload, frame, self._segment)
