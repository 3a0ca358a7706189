"""Opening a log that exists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.disk import TEMPORARY, unwritable
from penstock.errors import fail
from penstock.log.carry import Carry
from penstock.log.floors import Floors
from penstock.log.frame import Frame
from penstock.log.index import Index
from penstock.log.scan import open_segment, scan_segment
from penstock.log.segment import Segment, SegmentWriter, create_segment, list_segments
from penstock.log.thin import disk_bytes


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log as it was found."""

    index: Index
    segments: list[Segment]
    active: SegmentWriter
    next_lsn: int


def recover(database: Path, folder: Path, floors: Floors) -> Recovered:
    """Builds the index from the segments, cuts off an unfinished tail, and opens the last segment for writing."""
    try:
        return _recover(database, folder, floors)
    except OSError as error:
        raise unwritable(folder, error) from error


def _recover(database: Path, folder: Path, floors: Floors) -> Recovered:
    for leftover in folder.glob(f"*{TEMPORARY}"):
        leftover.unlink()
    index = Index(database)
    found = list_segments(folder)
    if not found:
        segment = create_segment(folder, 1, 1, {})
        return Recovered(index, [segment], SegmentWriter(segment, segment.size), 1)
    segments: list[Segment] = []
    seen: set[int] = set()
    expected = 0
    for number, path in found:
        opened = open_segment(path, number)
        if segments:
            _check_follows(segments[-1], number, opened.first_lsn, expected)
        segment = Segment(number, path, opened.first_lsn, opened.data.size, opened.head.version)
        segments.append(segment)
        # Segments between this one and the last may be gone; its head knows what they held.
        index.carries.update({i: c for i, c in opened.head.carries.items() if not floors.forgotten(i)})
        replay = _Replay(index, segment, floors, database)
        expected, segment.size = scan_segment(opened, replay.add, last=number == found[-1][0])
        seen |= replay.seen | opened.head.carries.keys()
        if opened.map is not None:
            segment.disk_bytes, segment.holds = disk_bytes(path), frozenset(replay.seen)
        else:
            segment.disk_bytes = segment.size
    if opened.map is not None:
        raise fail("PSK-6001", f"{path} was thinned out, and the segments that followed it are missing.")
    floors.dropped(seen, expected - 1)
    active = SegmentWriter(segments[-1], segments[-1].size)
    # Commits that a crash left written but not synced are seen from now on, so they must stay.
    active.withdraw()
    return Recovered(index, segments, active, expected)


def _check_follows(previous: Segment, number: int, first_lsn: int, expected: int) -> None:
    follows = previous.number + 1 == number
    if first_lsn < expected or (follows and first_lsn != expected):
        raise fail(
            "PSK-6001",
            f"{previous.path} is damaged at offset {previous.size}: it ends before commit {expected}, "
            f"and segment {number} begins with {first_lsn}.",
        )


class _Replay:
    """Takes in the frames of a segment."""

    def __init__(self, index: Index, segment: Segment, floors: Floors, database: Path) -> None:
        self._index = index
        self._segment = segment
        self._floors = floors
        self._database = database
        self.seen: set[int] = set()

    def add(self, payload: int, frame: Frame) -> None:
        object_id, carries = frame.object_id, self._index.carries
        self.seen.add(object_id)
        if not self._floors.forgotten(object_id):
            known = carries.get(object_id, Carry())
            job_epoch = frame.job_epoch if frame.job_epoch >= 0 else known.job_epoch
            row_epoch = frame.epoch if frame.rows else frame.since - 1
            carries[object_id] = Carry(frame.watermark, frame.epoch, job_epoch, row_epoch)
        if frame.lsn > self._floors[object_id]:
            if frame.external_path is not None:
                self._check_external(frame, frame.external_path)
            self._index.add(payload, frame, self._segment)
        elif frame.external_path is not None:
            # A crash can come between raising the floor and deleting the file.
            (self._database / frame.external_path).unlink(missing_ok=True)

    def _check_external(self, frame: Frame, file: str) -> None:
        path = self._database / file
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
        if size < frame.external_length:
            raise fail(
                "PSK-6001",
                f"{path} is damaged at offset {size}: commit {frame.lsn} needs {frame.external_length} bytes of it.",
            )
