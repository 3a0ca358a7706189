"""The checkpoints in a folder, one file each."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.checkpoint.kinds import CheckpointErrorKind
from penstock.checkpoint.snapshot import StreamCheckpoint
from penstock.disk import make_folder, sync_folder, write_durably
from penstock.errors import PenstockError

_NAME = re.compile(r"checkpoint-(\d{20})\.bin")


class CheckpointFiles:
    """Writes, reads and removes checkpoints. Each is written whole, or not at all. All failures are PSK-6016."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ids(self) -> list[int]:
        """The ids of all files, sound or not, the oldest first."""
        try:
            names = [p.name for p in self._folder.iterdir()] if self._folder.is_dir() else []
        except OSError as why:
            raise _failed(why) from why
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def write(self, checkpoint: StreamCheckpoint) -> None:
        data = checkpoint.to_bytes()
        try:
            make_folder(self._folder)
            write_durably(self.path(checkpoint.id), data)
        except PenstockError as why:
            raise CheckpointErrorKind.IO_ERROR.error(why.detail) from why

    def read(self, id: int) -> StreamCheckpoint:
        """Raises PSK-6016, naming the file, if it is missing or damaged, or is another checkpoint's."""
        path = self.path(id)
        try:
            found = StreamCheckpoint.from_bytes(path.read_bytes())
        except OSError as why:
            raise _failed(why) from why
        except PenstockError as why:
            raise CheckpointErrorKind.IO_ERROR.error(f"{path}: {why.detail}") from why
        if found.id != id:
            raise CheckpointErrorKind.IO_ERROR.error(f"{path} has checkpoint {found.id}")
        return found

    def remove(self, id: int) -> None:
        try:
            self.path(id).unlink(missing_ok=True)
            sync_folder(self._folder)
        except OSError as why:
            raise _failed(why) from why

    def path(self, id: int) -> Path:
        return self._folder / f"checkpoint-{id:020d}.bin"


def _failed(why: OSError) -> PenstockError:
    return CheckpointErrorKind.IO_ERROR.error(str(why))
