"""Which files of an object are merged, and by whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.serve.ondisk.segment import Facts

ALIKE = 4
"""So many files of one level are merged, and a level has files that are so many times as large as those of the next lower one."""
_SMALL_PARTS = 16
"""A merge of more than so many parts is a large one. It takes many times as long as the next changes take to become files."""


def spans(files: Sequence[Facts], part_bytes: int, count: int | None) -> Iterator[tuple[int, int]]:
    """Which neighbours among files, the oldest first, can be merged, the smallest merge first. `count` are the rows that all files stand for; None if these are not all files.

    A file that is merged comes to a higher level, so each row is written about as often as there are levels.
    """
    levels = [_level(f.size, part_bytes) for f in files]
    start = len(files)
    for level in sorted(set(levels)):
        while start and levels[start - 1] <= level:
            start -= 1
        alike = [i for i in range(start, len(files)) if levels[i] == level]
        if len(alike) >= ALIKE:
            # Newer files of lower levels wait for others like them.
            yield start, alike[-1] + 1
    rows = sum(f.rows for f in files)
    if count is not None and len(files) > 1 and rows > 2 * count and rows - count > files[-1].rows:
        yield 0, len(files)  # Most of it has been replaced.


def is_large(files: Sequence[Facts], part_bytes: int) -> bool:
    return sum(f.size for f in files) > _SMALL_PARTS * part_bytes


def _level(size: int, part_bytes: int) -> int:
    level = 0
    while size >= ALIKE * part_bytes:
        size //= ALIKE
        level += 1
    return level


__all__ = ["ALIKE", "is_large", "spans"]
