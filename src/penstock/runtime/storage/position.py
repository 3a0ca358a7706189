"""The position of a sink in its stream."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.catalog.objects import ObjectInfo
from penstock.disk import make_folder, unpack_json, write_json
from penstock.errors import PenstockError, fail
from penstock.runtime.storage.layout import Layout

_FORMAT = 3
_BEFORE_UNDO = 2
_NAME = "position.json"


@dataclass(frozen=True)
class Position:
    """Everything up to epoch `epoch`, at `lsn`, is delivered or, if the sink prepares, decided. `committed` is the last epoch up to there that had rows, and
    `before` the one before the last transaction, if that is known.

    `undo`: a restore has taken the epochs in (first, second] back, and the target may still have some of them.
    """

    epoch: int = 0
    lsn: int = 0
    committed: int = 0
    undo: tuple[int, int] | None = None
    before: int | None = None
    ends: int | None = None
    """The last epoch of the stream when it had fewer than were delivered: commits were lost, and what comes next under these numbers is something else."""


class PositionFile:
    def __init__(self, path: Path, sink: str) -> None:
        self._path = path
        self._sink = sink

    def write(self, position: Position) -> None:
        """Durable on return. Raises PSK-7004; the old position then still counts, unless only the final sync failed."""
        make_folder(self._path.parent)
        content = asdict(position)
        for name in ("undo", "ends"):
            if content[name] is None:
                del content[name]
        # An earlier version must not overlook what is to be taken back.
        write_json(self._path, content, _BEFORE_UNDO if position.undo is None else _FORMAT)

    def read(self) -> Position:
        """Raises PSK-6001 if it is damaged or missing: each sink has one from its creation on."""
        try:
            data = self._path.read_bytes()
            stored = json.loads(data)
            # Before format 2 it had no checksum.
            if "epoch" not in stored:
                stored = unpack_json(data, _FORMAT, self._path)
            epoch, lsn = int(stored["epoch"]), int(stored["lsn"])
            undo = stored.get("undo")
            after, up_to = undo or (0, 0)
            committed = int(stored.get("committed", epoch))
            back = (int(after), int(up_to)) if undo else None
            before, ends = (None if n is None else int(n) for n in (stored.get("before"), stored.get("ends")))
            return Position(epoch, lsn, committed, back, before, ends)
        except FileNotFoundError as why:
            raise self._unknown("missing") from why
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
            raise self._unknown("damaged") from why

    def _unknown(self, why: str) -> PenstockError:
        return fail(
            "PSK-6001",
            f"{self._path} is {why}: how far sink {self._sink} has delivered is unknown.",
            hint=f"Restore the file from a backup, or the database from a checkpoint; or drop sink {self._sink} and create it again, with an empty target.",
        )

    def exists(self) -> bool:
        return self._path.exists()


def position_file(layout: Layout, info: ObjectInfo) -> PositionFile:
    return PositionFile(layout.job(info.id) / _NAME, info.name)


def position_of(layout: Layout, info: ObjectInfo) -> Position:
    """The position of a sink; that of a new one if its file is damaged or missing, which is reported when the sink starts."""
    try:
        return position_file(layout, info).read()
    except PenstockError:
        return Position()
