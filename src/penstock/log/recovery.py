"""Opening a log that exists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import fail
from penstock.log.carry import Carry
from penstock.log.entry import Entry
from penstock.log.floors import Floors
from penstock.log.index import Index
from penstock.log.scan import Scan, scan_segment
from penstock.log.segment import Segment, SegmentWriter, create_segment, list_segments
from penstock.log.writer import entry_of


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log as it was found."""

    index: Index
    segments: list[Segment]
    active: SegmentWriter
    next_lsn: int


def recover(database: Path, folder: Path, floors: Floors) -> Recovered:
    """Builds the index from the segments, cuts off an unfinished tail, and opens the last segment for writing."""
    for leftover in folder.glob("*.tmp"):
        leftover.unlink()
    index = Index()
    found = list_segments(folder)
    if not found:
        segment = create_segment(folder, 1, 1, {})
        return Recovered(index, [segment], SegmentWriter(segment, segment.size), 1)
    segments: list[Segment] = []
    previous: Segment | None = None
    expected = 0
    for number, path in found:
        scan = scan_segment(path, number, last=number == found[-1][0])
        follows = previous is not None and previous.number + 1 == number
        if scan.first_lsn < expected or (follows and scan.first_lsn != expected):
            at = previous or Segment(number, path, 0, 0)
            raise fail(
                "PSK-6001",
                f"{at.path} is damaged at offset {at.size}: it ends before commit {expected}, "
                f"and {path.name} begins with {scan.first_lsn}.",
            )
        previous = Segment(number, path, scan.first_lsn, scan.end)
        segments.append(previous)
        expected = scan.next_lsn
        _replay(scan, previous, index, floors, database)
    active = SegmentWriter(segments[-1], segments[-1].size)
    # Commits that a crash left written but not synced are seen from now on, so they must stay.
    active.withdraw()
    return Recovered(index, segments, active, expected)


def _replay(scan: Scan, segment: Segment, index: Index, floors: Floors, database: Path) -> None:
    # Segments between this one and the last may be gone; its head knows what they held.
    index.carries.update({i: c for i, c in scan.carries.items() if not floors.forgotten(i)})
    path = str(segment.path)
    for payload, frame in scan.frames:
        object_id = frame.object_id
        if not floors.forgotten(object_id):
            known = index.carries.get(object_id, Carry())
            job_epoch = frame.job_epoch if frame.job_epoch >= 0 else known.job_epoch
            index.carries[object_id] = Carry(frame.watermark, frame.epoch, job_epoch)
        entry = entry_of(frame, path, payload, database)
        if frame.lsn > floors[object_id]:
            if frame.external_path is not None:
                _check_external(entry)
            index.add(entry, segment)
        elif frame.external_path is not None:
            # A crash can come between raising the floor and deleting the file.
            Path(entry.path).unlink(missing_ok=True)


def _check_external(entry: Entry) -> None:
    try:
        size = Path(entry.path).stat().st_size
    except FileNotFoundError:
        size = 0
    if size < entry.length:
        raise fail(
            "PSK-6001",
            f"{entry.path} is damaged at offset {size}: commit {entry.lsn} needs {entry.length} bytes of it.",
        )
