"""Random numbers that depend on nothing but where they are asked for, so that rows are the same however they are cut into batches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def bits(numbers: Ints, seed: int, field: int) -> npt.NDArray[np.uint64]:
    """64 bits for each number, independent for each `field` (the splitmix64 function of the three)."""
    salt = np.uint64((seed * 0x632BE59BD9B4E019 + field * 0xD1B54A32D192ED03) % 2**64)
    out = numbers.astype(np.uint64)
    out *= _STEP
    out ^= salt
    out ^= out >> np.uint64(30)
    out *= _MIX_1
    out ^= out >> np.uint64(27)
    out *= _MIX_2
    out ^= out >> np.uint64(31)
    return out


def below(numbers: Ints, seed: int, field: int, limit: int | Ints) -> Ints:
    """A whole number from 0 to `limit` - 1 for each number."""
    return (unit(numbers, seed, field) * limit).astype(np.int64)


def unit(numbers: Ints, seed: int, field: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each number."""
    high = bits(numbers, seed, field) >> np.uint64(11)
    return high.astype(np.float64) * 2.0**-53
