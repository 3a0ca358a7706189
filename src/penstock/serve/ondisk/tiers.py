"""Chooses which files of an object to merge, and how large a merge is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.serve.ondisk.segment import Facts

ALIKE = 4
"""The number of files of one level to merge, and the ratio of file sizes between levels."""
_SMALL_PARTS = 16
"""A merge of more bytes than this many parts is large: it takes many times as long as the next changes take to become files."""


def spans(files: Sequence[Facts], part_bytes: int, count: int | None) -> Iterator[tuple[int, int]]:
    """The ranges of adjacent files (oldest first) that can be merged, the smallest merge first. `count`: rows of the contents; None if these are not all files.

    A merged file has a higher level, so each row is written about once per level.
    """
    levels = [_level(f.size, part_bytes) for f in files]
    start = len(files)
    for level in sorted(set(levels)):
        while start and levels[start - 1] <= level:
            start -= 1
        alike = [i for i in range(start, len(files)) if levels[i] == level]
        if len(alike) >= ALIKE:
            # Newer files of lower levels wait for more of their size.
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
