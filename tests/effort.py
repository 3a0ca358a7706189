"""How much the tests try. `make test-long` tries more than `make test`, with TEST_EFFORT."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("TEST_EFFORT", "1"))


def times(count: int) -> int:
    """So many examples, strikes or rounds in `make test`, and a multiple of them in `make test-long`."""
    return count * EFFORT
