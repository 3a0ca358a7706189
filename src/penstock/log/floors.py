"""Up to which LSN each object's entries are gone, kept durably."""

from __future__ import annotations

import json
from pathlib import Path

import google_crc32c

from penstock.errors import fail
from penstock.log.disk import replace_file

FORGOTTEN = 2**63 - 1
"""The floor of an object that was dropped."""


class Floors:
    """Entries at or below an object's floor are not needed any more, even if their segment is still there."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "floors.json"
        self._values: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        if self._path.exists():
            self._values = self._load()
            self._saved = dict(self._values)

    def _load(self) -> dict[int, int]:
        try:
            stored = json.loads(self._path.read_bytes())
            values = {int(k): int(v) for k, v in stored["floors"].items()}
            sound = stored["crc"] == _checksum(values)
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise fail("PSK-6001", f"{self._path} is damaged at offset 0: its checksum does not match.")
        return values

    def __getitem__(self, object_id: int) -> int:
        return self._values.get(object_id, 0)

    def forgotten(self, object_id: int) -> bool:
        return self._values.get(object_id) == FORGOTTEN

    def raise_to(self, object_id: int, lsn: int) -> None:
        self._values[object_id] = max(lsn, self._values.get(object_id, 0))

    def save(self) -> None:
        """Makes the floors durable. Whatever lies below them may be deleted only after this."""
        values = dict(self._values)
        if values == self._saved:
            return
        content = {"floors": {str(k): v for k, v in sorted(values.items())}, "crc": _checksum(values)}
        replace_file(self._path, json.dumps(content).encode())
        self._saved = values


def _checksum(values: dict[int, int]) -> int:
    return int(google_crc32c.value(json.dumps(sorted(values.items())).encode()))
