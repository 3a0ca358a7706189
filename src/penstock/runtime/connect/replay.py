"""Where a replayable source goes on."""

from __future__ import annotations

from penstock.catalog.objects import ObjectInfo
from penstock.disk import make_folder, read_json, write_json
from penstock.errors import fail
from penstock.runtime.storage.storage import Storage

_FORMAT = 1
_NAME = "replay.json"
# One would be enough for a crash. A checkpoint has the file as it is some commits after the log that it pins, and `async` may lose commits.
_KEPT = 100


class SourcePositions:
    """The positions of the last batches of a source.

    Batches are numbered, and the commit of a batch has its number (`Part.job_epoch`). The position is on disk before the commit, so whichever batch
    the log has last, its position is known: no batch is committed twice, and none is skipped.
    """

    def __init__(self, storage: Storage, info: ObjectInfo) -> None:
        self._log = storage.log
        self._info = info
        self._path = storage.layout.job(info.id) / _NAME
        self._positions = self._read()

    def last(self) -> str | None:
        """The position of the last batch in the log; None if there is none. Raises PSK-6001 if it is not known."""
        number = self._log.job_epoch(self._info.id)
        if number < 0:
            return None
        if number not in self._positions:
            raise fail("PSK-6001", f"{self._path} does not have {self._lost}", hint=self._hint)
        return self._positions[number]

    def note(self, position: str | None) -> int:
        """Stores the position of the next batch durably, and returns the number with which it must be committed. Raises PSK-7004."""
        if not isinstance(position, str):
            raise fail(
                "PSK-5002", f"The connector of {self._info.name} is replayable, but gave rows without a position."
            )
        number = self._log.job_epoch(self._info.id) + 1
        # After a restore, or a commit that failed, a number is used again.
        kept = {n: p for n, p in self._positions.items() if number - _KEPT < n < number} | {number: position}
        make_folder(self._path.parent)
        write_json(self._path, [[n, p] for n, p in kept.items()], _FORMAT)
        self._positions = kept
        return number

    def _read(self) -> dict[int, str]:
        try:
            found = read_json(self._path, _FORMAT, lost=f"It has {self._lost}", hint=self._hint)
        except FileNotFoundError:
            return {}
        return {int(number): str(position) for number, position in found}

    @property
    def _lost(self) -> str:
        return f"the position at which the connector of {self._info.name} goes on."

    @property
    def _hint(self) -> str:
        return f"Restore the file from a backup, or drop {self._info.name} and create it again."
