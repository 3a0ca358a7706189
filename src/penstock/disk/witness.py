"""A number that attests how far something has come."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import google_crc32c

# magic, crc of the number, number
_FORM = struct.Struct("<4sIQ")
_NUMBER = struct.Struct("<Q")
_MAGIC = b"PSKw"


class Witness:
    """Sixteen bytes that are rewritten in place, without a sync, after the change that they attest is durable.

    So the number can be behind the truth, after a power cut, and is never ahead of it. A file that is missing or damaged attests
    nothing (0). Nothing depends on its being written, so a disk that refuses is ignored. One thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self.number = self._read()

    def _read(self) -> int:
        try:
            data = self._path.read_bytes()
        except OSError:
            return 0
        if len(data) != _FORM.size:
            return 0
        magic, crc, number = _FORM.unpack(data)
        return int(number) if magic == _MAGIC and google_crc32c.value(data[8:]) == crc else 0

    def attest(self, number: int) -> None:
        """Writes a number that is true from now on."""
        self.number = number
        with suppress(OSError):
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._fd, _packed(number), 0)

    def close(self) -> None:
        """Syncs and closes the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.fsync(fd)
            os.close(fd)

    @staticmethod
    def write(path: Path, number: int) -> None:
        """Attests a number in a file that nobody keeps open."""
        with suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, _packed(number), 0)
            finally:
                os.close(fd)


def _packed(number: int) -> bytes:
    return _FORM.pack(_MAGIC, google_crc32c.value(_NUMBER.pack(number)), number)
