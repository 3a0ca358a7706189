"""Draws numbers as a row of block characters."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, *, from_zero: bool = False) -> str:
    """The last `width` values; the smallest (or zero) is the lowest block, the largest the highest.

    Equal values are drawn at half height. The result is padded on the left to `width`.
    """
    shown = list(values[-width:]) if width > 0 else []
    if not shown:
        return " " * width
    low = 0.0 if from_zero else min(shown)
    span = max(shown) - low
    top = len(BLOCKS) - 1
    marks = (BLOCKS[top // 2] if span <= 0 else BLOCKS[round((v - low) / span * top)] for v in shown)
    return "".join(marks).rjust(width)
