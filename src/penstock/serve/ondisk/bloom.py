"""A Bloom filter of a file's keys: it rules out nearly all keys that the file does not have, without reading the file."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_BITS_PER_KEY = 20
_PROBES = 4
_AGAIN = 0x9E3779B97F4A7C15
_HALF = 32

_PAIRS = np.array([1 << (n & 63) | 1 << (n >> 6) for n in range(1 << 12)], np.uint64)

Hashes: TypeAlias = npt.NDArray[np.uint64]


class Bloom:
    """A key has four bits in each of two words of 64 bits. One of 3,000 absent keys passes. With one word it would be one of 50, and a load in random key order would read a block for each.

    `rounds` is the number of words of a key. Files of earlier versions have one.
    """

    def __init__(self, words: npt.NDArray[np.uint64], rounds: int = 2) -> None:
        self._words = words
        self.rounds = rounds

    @staticmethod
    def for_keys(count: int) -> Bloom:
        return Bloom(np.zeros(max(1, -(-count * _BITS_PER_KEY // 64)), np.uint64))

    @staticmethod
    def from_bytes(data: bytes, rounds: int) -> Bloom:
        return Bloom(np.frombuffer(data, np.uint64), rounds)

    def to_bytes(self) -> bytes:
        return self._words.tobytes()

    def add(self, hashes: Hashes) -> None:
        for _ in range(self.rounds):
            np.bitwise_or.at(self._words, self._places(hashes), _bits(hashes))
            hashes = _again(hashes)

    def may_have(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        found = self._passes(hashes)
        for _ in range(1, self.rounds):
            left = np.flatnonzero(found)
            hashes = _again(hashes)
            found[left] = self._passes(hashes[left])
        return found

    def may_have_one(self, hashed: int) -> bool:
        """As `may_have`, for one key, where plain Python is faster than NumPy."""
        for _ in range(self.rounds):
            word = int(self._words[(hashed >> 24) % len(self._words)])
            if not all(word >> (hashed >> 6 * probe) % 64 & 1 for probe in range(_PROBES)):
                return False
            hashed = hashed * _AGAIN & 0xFFFFFFFFFFFFFFFF
            hashed = hashed >> _HALF | (hashed & 0xFFFFFFFF) << _HALF
        return True

    def _passes(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        bits = _bits(hashes)
        return np.asarray(self._words[self._places(hashes)] & bits == bits, np.bool_)

    def _places(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        return ((hashes >> np.uint64(24)) % np.uint64(len(self._words))).astype(np.int64)


def _bits(hashes: Hashes) -> Hashes:
    """The four bits of each key in its word. They are looked up in pairs, which is several times as fast as shifting."""
    low = (hashes & np.uint64(len(_PAIRS) - 1)).astype(np.int64)
    high = (hashes >> np.uint64(12) & np.uint64(len(_PAIRS) - 1)).astype(np.int64)
    return np.asarray(_PAIRS[low] | _PAIRS[high], np.uint64)


def _again(hashes: Hashes) -> Hashes:
    """Other hashes of the same keys."""
    with np.errstate(over="ignore"):
        mixed = hashes * np.uint64(_AGAIN)
    return mixed >> np.uint64(_HALF) | mixed << np.uint64(_HALF)
