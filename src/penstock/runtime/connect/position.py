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
    """Everything up to epoch `epoch`, at `lsn`, is delivered or, if the sink prepares, decided. `committed` is the last epoch up to there that had rows.

    `undo`: a restore has taken the epochs in (first, second] back, and the target may still have some of them.
    """

    epoch: int = 0
    lsn: int = 0
    committed: int = 0
    undo: tuple[int, int] | None = None


class PositionFile:
    def __init__(self, path: Path, sink: str) -> None:
        self._path = path
        self._sink = sink

    def write(self, position: Position) -> None:
        """Durable on return. Raises PSK-7004; the old position then still counts, unless only the final sync failed."""
        make_folder(self._path.parent)
        content = asdict(position)
        if position.undo is None:
            del content["undo"]
        # An earlier version must not overlook what is to be taken back.
        write_json(self._path, content, _BEFORE_UNDO if position.undo is None else _FORMAT)

    def read(self) -> Position:
        """The position of a new sink if there is no file. Raises PSK-6001 if it is damaged."""
        try:
            data = self._path.read_bytes()
            stored = json.loads(data)
            # Before format 2 it had no checksum.
            if "epoch" not in stored:
                stored = unpack_json(data, _FORMAT, self._path)
            epoch, lsn = int(stored["epoch"]), int(stored["lsn"])
            undo = stored.get("undo")
            after, up_to = undo or (0, 0)
            return Position(epoch, lsn, int(stored.get("committed", epoch)), (int(after), int(up_to)) if undo else None)
        except FileNotFoundError:
            return Position()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
            raise fail(
                "PSK-6001",
                f"{self._path} is damaged: the position of sink {self._sink} is not known.",
                hint=f"Restore the file from a backup, or drop sink {self._sink} and create it again.",
            ) from why


def position_file(layout: Layout, info: ObjectInfo) -> PositionFile:
    return PositionFile(layout.job(info.id) / _NAME, info.name)


def position_of(layout: Layout, info: ObjectInfo) -> Position:
    """The position of a sink; that of a new one if its file is damaged, which is reported when the sink starts."""
    try:
        return position_file(layout, info).read()
    except PenstockError:
        return Position()
