"""Arrow files with a checksum that is verified before reading. One flipped bit in an Arrow file can crash the reading process."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO

import google_crc32c
import pyarrow as pa

_MAGIC = b"PSKz"
_ARROW = b"ARROW1"
"""The end of a plain Arrow file. A file that ends with it is from an older version and has no seal."""
# crc32c of everything before it, magic
_SEAL = struct.Struct("<I4s")


class _Summed:
    """Forwards writes to a file and computes their checksum."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.closed = False
        self.crc = 0

    def write(self, data: bytes) -> int:
        self.crc = google_crc32c.extend(self.crc, data)
        return self._out.write(data)

    def tell(self) -> int:
        return self._out.tell()

    def flush(self) -> None: ...


def sealed(write: Callable[[object], object]) -> Callable[[BinaryIO], None]:
    """Wraps `write` so that a seal follows its output."""

    def whole(out: BinaryIO) -> None:
        summed = _Summed(out)
        write(summed)
        out.write(_SEAL.pack(summed.crc, _MAGIC))

    return whole


def unsealed(data: pa.Buffer) -> pa.Buffer:
    """The data before the seal. Raises ValueError if the checksum does not match."""
    end = data.size - _SEAL.size
    if end >= 0:
        crc, magic = _SEAL.unpack_from(data, end)
        if magic == _MAGIC:
            content = data.slice(0, end)
            if google_crc32c.value(content) != crc:
                raise ValueError("its checksum does not match")
            return content
    if data.size >= len(_ARROW) and data.slice(data.size - len(_ARROW)).to_pybytes() == _ARROW:
        return data
    raise ValueError("it ends too early")
