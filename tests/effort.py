"""How much the tests try. `make test-long` tries more than `make test`, with TEST_EFFORT."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("TEST_EFFORT", "1"))


def times(count: int, quick: int | None = None) -> int:
    """So many examples, strikes or rounds in `make test`, and a multiple of them in `make test-long`.

    `quick` is for rounds that take long: `make test` tries only so many, and `make test-long` tries the multiple of `count`.
    """
    return quick if quick is not None and EFFORT == 1 else count * EFFORT
