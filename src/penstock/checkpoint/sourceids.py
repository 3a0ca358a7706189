"""The 16-bit source ids of changelog entries."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from penstock.checkpoint.kinds import CheckpointErrorKind

_ROW = struct.Struct("<HQ")
_LIMIT = 2**16


class SourceIds:
    """Maps object ids, which are never reused and grow without a bound, to the 16 bits of a changelog entry.

    An object keeps its source id until it is released. A released id is given out again only after all ids that were never used, and the one released first
    comes first, so that entries which are still under way keep their meaning for as long as possible.
    """

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._object: dict[int, int] = {}
        self._free: dict[int, None] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[int]:
        return iter(self._of)

    def of(self, object_id: int) -> int:
        """The source id of an object; assigns one to a new object. Raises PSK-6015 if all are in use."""
        known = self._of.get(object_id)
        if known is None:
            known = self._unused()
            self._of[object_id] = known
            self._object[known] = object_id
        return known

    def object_of(self, source_id: int) -> int | None:
        """The object with a source id; None if there is none, or it was released."""
        return self._object.get(source_id)

    def release(self, object_id: int) -> None:
        """Frees the source id of a dropped object."""
        source_id = self._of.pop(object_id, None)
        if source_id is not None:
            del self._object[source_id]
            self._free[source_id] = None

    def _unused(self) -> int:
        if self._next < _LIMIT:
            self._next += 1
            return self._next - 1
        if not self._free:
            raise CheckpointErrorKind.INVALID_CONFIG.error(f"more than {_LIMIT} sources")
        first = next(iter(self._free))
        del self._free[first]
        return first

    def to_bytes(self) -> bytes:
        """One row per object: source id (u16), object id (u64); little-endian."""
        return b"".join(_ROW.pack(source_id, object_id) for object_id, source_id in self._of.items())

    @classmethod
    def from_bytes(cls, data: bytes) -> SourceIds:
        """Raises PSK-6016 if `data` is not a table of distinct ids. Ids that are not in it can be given out again."""
        made = cls()
        if len(data) % _ROW.size:
            raise CheckpointErrorKind.IO_ERROR.error("truncated table of source ids")
        for source_id, object_id in _ROW.iter_unpack(data):
            if source_id in made._object or object_id in made._of:
                raise CheckpointErrorKind.IO_ERROR.error("duplicate source id")
            made._of[object_id] = source_id
            made._object[source_id] = object_id
        made._next = max(made._object, default=-1) + 1
        made._free = dict.fromkeys(i for i in range(made._next) if i not in made._object)
        return made
