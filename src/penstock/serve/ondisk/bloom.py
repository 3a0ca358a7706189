"""A filter that knows which keys a file may have: of a key that is not there it says so, nearly always, without reading the file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BITS_PER_KEY = 10
_PROBES = 4
_WORD = np.uint64(64)


class Bloom:
    """One word of 64 bits for each key, in which it has four bits."""

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self._words = words

    @staticmethod
    def for_keys(count: int) -> Bloom:
        return Bloom(np.zeros(max(1, -(-count * _BITS_PER_KEY // 64)), np.uint64))

    @staticmethod
    def from_bytes(data: bytes) -> Bloom:
        return Bloom(np.frombuffer(data, np.uint64))

    def to_bytes(self) -> bytes:
        return self._words.tobytes()

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        np.bitwise_or.at(self._words, self._places(hashes), _bits(hashes))

    def may_have(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        bits = _bits(hashes)
        return np.asarray(self._words[self._places(hashes)] & bits == bits, np.bool_)

    def may_have_one(self, hashed: int) -> bool:
        """The same for one key, which costs NumPy more than it costs Python."""
        word = int(self._words[(hashed >> 24) % len(self._words)])
        return all(word >> (hashed >> 6 * probe) % 64 & 1 for probe in range(_PROBES))

    def _places(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        return ((hashes >> np.uint64(24)) % np.uint64(len(self._words))).astype(np.int64)


def _bits(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    found = np.zeros(len(hashes), np.uint64)
    for probe in range(_PROBES):
        found |= np.uint64(1) << ((hashes >> np.uint64(6 * probe)) % _WORD)
    return found
