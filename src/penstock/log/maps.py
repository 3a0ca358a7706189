"""Files mapped into memory for reading."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict

import pyarrow as pa

_KEPT = 64


def map_file(path: str) -> pa.Buffer:
    """The whole file as one buffer. The mapping lives as long as the buffer or any slice of it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        if os.fstat(fd).st_size == 0:
            return pa.py_buffer(b"")
        # Shared, so that what is appended within the mapped size later on is seen.
        return pa.py_buffer(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)


class Maps:
    """The mappings used last. A file that has grown past its mapping is mapped anew."""

    def __init__(self) -> None:
        self._maps: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._lock = threading.Lock()

    def slice(self, path: str, offset: int, length: int) -> pa.Buffer:
        """Bytes of a file, without copying; fewer if it ends before. Raises FileNotFoundError if it is gone."""
        with self._lock:
            buffer = self._maps.pop(path, None)
            if buffer is None or buffer.size < offset + length:
                buffer = map_file(path)
            self._maps[path] = buffer
            if len(self._maps) > _KEPT:
                self._maps.popitem(last=False)
        start = min(offset, buffer.size)
        return buffer.slice(start, min(length, buffer.size - start))

    def drop(self, path: str) -> None:
        with self._lock:
            self._maps.pop(path, None)

    def clear(self) -> None:
        with self._lock:
            self._maps.clear()
