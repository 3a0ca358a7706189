"""Up to which LSN each object's entries are gone, kept durably."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import google_crc32c

from penstock.disk import write_durably
from penstock.errors import fail

FORGOTTEN = 2**63 - 1
"""The floor of an object that was dropped."""


class Floors:
    """Entries at or below an object's floor are not needed any more, even if their segment is still there.

    The floor of a dropped object is kept as long as a segment may have frames of it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "floors.json"
        self._values: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._dropped_at: dict[int, int] = {}
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise fail("PSK-6001", f"{self._path} cannot be read: {error.strerror or error}.") from error
        self._values = self._parse(data)
        self._saved = dict(self._values)

    def _parse(self, data: bytes) -> dict[int, int]:
        try:
            stored = json.loads(data)
            values = {int(k): int(v) for k, v in stored["floors"].items()}
            sound = stored["crc"] == _checksum(values)
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise fail("PSK-6001", f"{self._path} is damaged at offset 0: its checksum does not match.")
        return values

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
        """The object was dropped; `head` is the last commit that can have something of it."""
        self._values[object_id] = FORGOTTEN
        self._dropped_at[object_id] = head

    def dropped(self, seen: set[int], head: int) -> None:
        """Called when the log is opened, with the objects that occur in its segments, and its last commit."""
        for object_id in [i for i, floor in self._values.items() if floor == FORGOTTEN]:
            if object_id in seen:
                self._dropped_at[object_id] = head
            else:
                del self._values[object_id]

    def settle(self, gone: Callable[[int, int], bool]) -> None:
        """Removes dropped objects that have nothing left on disk; `gone` is asked with the object and the LSN of the drop."""
        for object_id, lsn in list(self._dropped_at.items()):
            if gone(object_id, lsn):
                del self._values[object_id], self._dropped_at[object_id]

    def save(self) -> None:
        """Makes the floors durable. Whatever lies below them may be deleted only after this."""
        values = dict(self._values)
        if values == self._saved:
            return
        content = {"floors": {str(k): v for k, v in sorted(values.items())}, "crc": _checksum(values)}
        write_durably(self._path, json.dumps(content).encode())
        self._saved = values


def _checksum(values: dict[int, int]) -> int:
    return int(google_crc32c.value(json.dumps(sorted(values.items())).encode()))
