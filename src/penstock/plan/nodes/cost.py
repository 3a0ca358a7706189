"""The state that an operator keeps between epochs, and the cost of one epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """`keeps` is None for operators without state.

    In `work`, `diff` is the number of input rows of the epoch, `n` the number of rows kept for their keys, `matches` the number of rows on
    the other side with the same key.
    """

    keeps: str | None
    work: str


LINEAR = Cost(None, "O(diff)")
