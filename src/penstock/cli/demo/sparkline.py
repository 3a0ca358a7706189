"""A row of numbers as a row of blocks."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, *, from_zero: bool = False) -> str:
    """The last `width` values, the smallest (or zero) as the lowest block and the largest as the highest.

    Values that are all the same are drawn half high. The result is `width` wide, filled up on the left.
    """
    shown = list(values[-width:]) if width > 0 else []
    if not shown:
        return " " * width
    low = 0.0 if from_zero else min(shown)
    span = max(shown) - low
    top = len(BLOCKS) - 1
    marks = (BLOCKS[top // 2] if span <= 0 else BLOCKS[round((v - low) / span * top)] for v in shown)
    return "".join(marks).rjust(width)
