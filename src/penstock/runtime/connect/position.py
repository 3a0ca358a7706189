"""The position of a sink in its stream."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.disk import make_folder, unpack_json, write_json
from penstock.errors import fail

_FORMAT = 2


@dataclass(frozen=True)
class Position:
    """Everything up to epoch `epoch`, at `lsn`, is delivered or, if the sink prepares, decided. `committed` is the last epoch up to there that had rows."""

    epoch: int = 0
    lsn: int = 0
    committed: int = 0


class PositionFile:
    def __init__(self, path: Path, sink: str) -> None:
        self._path = path
        self._sink = sink

    def write(self, position: Position) -> None:
        """Durable on return. Raises PSK-7004; the old position then still counts, unless only the final sync failed."""
        make_folder(self._path.parent)
        write_json(self._path, asdict(position), _FORMAT)

    def read(self) -> Position:
        """The position of a new sink if there is no file. Raises PSK-6001 if it is damaged."""
        try:
            data = self._path.read_bytes()
            stored = json.loads(data)
            # Before format 2 it had no checksum.
            if "epoch" not in stored:
                stored = unpack_json(data, _FORMAT, self._path)
            epoch, lsn = int(stored["epoch"]), int(stored["lsn"])
            return Position(epoch, lsn, int(stored.get("committed", epoch)))
        except FileNotFoundError:
            return Position()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
            raise fail(
                "PSK-6001",
                f"{self._path} is damaged: the position of sink {self._sink} is not known.",
                hint=f"Restore the file from a backup, or drop sink {self._sink} and create it again.",
            ) from why
