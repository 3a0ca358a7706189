"""What was removed from the log: the trim position (floor) of each object, and the segments that were deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c

from penstock.disk import unpack_json, write_json
from penstock.errors import fail

FORMAT = 3

FORGOTTEN = 2**63 - 1
"""The floor of an object that was dropped."""


class Abandoned(NamedTuple):
    """What a restore has taken back: the commits in (`after`, `up_to`], and of each object such a range of epochs. None of these numbers is used again."""

    after: int
    up_to: int
    epochs: Mapping[int, tuple[int, int]]


class Floors:
    """Entries at or below an object's floor are no longer needed, even if their segment still exists.

    The floor of a dropped object is kept as long as a segment may contain its frames. A segment that is missing and was not `removed` is lost.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "floors.json"
        self._values: dict[int, int] = {}
        self._removed: set[int] = set()
        self.abandoned: list[Abandoned] = []
        self._saved: tuple[dict[int, int], set[int], int] = ({}, set(), 0)
        self._dropped_at: dict[int, int] = {}
        self._older = False
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise fail("PSK-6001", f"{self._path} cannot be read: {error.strerror or error}.") from error
        self._parse(data)
        self._saved = dict(self._values), set(self._removed), len(self.abandoned)

    def _parse(self, data: bytes) -> None:
        try:
            stored = json.loads(data)
            if "content" in stored:
                stored = unpack_json(data, FORMAT, self._path)
            else:
                self._older = True
            self._values = {int(k): int(v) for k, v in stored["floors"].items()}
            if self._older:
                sound = stored["crc"] == _checksum(self._values)
            else:
                self._removed = {n for first, last in stored["removed"] for n in range(first, last + 1)}
                self.abandoned = [_abandoned(a) for a in stored.get("abandoned", ())]
                sound = True
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise fail(
                "PSK-6001",
                f"{self._path} is damaged: which segments were removed is unknown.",
                hint="Restore the file from a backup.",
            )

    def remove(self, numbers: Iterable[int]) -> None:
        """Segments are about to be deleted: after `save` they may be missing."""
        self._removed.update(numbers)

    def missing(self, found: Sequence[tuple[int, int]]) -> list[int]:
        """The segments that are lost; `found` has number and format of those that there are. What a format before 3 has removed is not known."""
        lost: list[int] = []
        before = 0
        for number, format in found:
            gap = set(range(before + 1, number)) - self._removed
            if self._older or format < 3:
                self._removed |= gap
            else:
                lost += sorted(gap)
            before = number
        return lost

    def __getitem__(self, object_id: int) -> int:
        return self._values.get(object_id, 0)

    def ids(self) -> Iterable[int]:
        """The objects that have a floor."""
        return self._values

    def forgotten(self, object_id: int) -> bool:
        return self._values.get(object_id) == FORGOTTEN

    def raise_to(self, object_id: int, lsn: int) -> None:
        self._values[object_id] = max(lsn, self._values.get(object_id, 0))

    def forget(self, object_id: int, head: int) -> None:
        """Records that the object was dropped; `head` is the last commit that can contain parts of it."""
        self._values[object_id] = FORGOTTEN
        self._dropped_at[object_id] = head

    def dropped(self, seen: set[int], head: int) -> None:
        """Called when the log is opened, with the objects in its segments and its last commit."""
        for object_id in [i for i, floor in self._values.items() if floor == FORGOTTEN]:
            if object_id in seen:
                self._dropped_at[object_id] = head
            else:
                del self._values[object_id]

    def settle(self, gone: Callable[[int, int], bool]) -> None:
        """Removes dropped objects that have nothing left on disk; `gone` is called with the object and the LSN of the drop."""
        for object_id, lsn in list(self._dropped_at.items()):
            if gone(object_id, lsn):
                del self._values[object_id], self._dropped_at[object_id]

    def save(self) -> None:
        """Makes the floors durable. Entries below them may only be deleted after this."""
        now = dict(self._values), set(self._removed), len(self.abandoned)
        if now == self._saved:
            return
        write_json(self._path, self.content(), FORMAT)
        self._saved, self._older = now, False

    def content(self) -> dict[str, Any]:
        """What the file has."""
        taken_back = [
            {"after": a.after, "up_to": a.up_to, "epochs": {str(i): list(e) for i, e in sorted(a.epochs.items())}}
            for a in self.abandoned
        ]
        floors = {str(k): v for k, v in sorted(self._values.items())}
        return {"floors": floors, "removed": _ranges(self._removed), "abandoned": taken_back}


def _abandoned(stored: dict[str, Any]) -> Abandoned:
    epochs = {int(i): (int(after), int(up_to)) for i, (after, up_to) in stored["epochs"].items()}
    return Abandoned(int(stored["after"]), int(stored["up_to"]), epochs)


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def _checksum(values: dict[int, int]) -> int:
    return int(google_crc32c.value(json.dumps(sorted(values.items())).encode()))
