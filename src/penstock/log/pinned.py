"""The files of a log at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.log.floors import Abandoned
from penstock.log.state import ObjectState


class Pinned(NamedTuple):
    """The last commit; the segments, each up to a size; the content of the file of floors; the state of each object;
    and what restores have taken back."""

    head: int
    segments: tuple[tuple[Path, int], ...]
    floors: bytes
    states: Mapping[int, ObjectState]
    abandoned: tuple[Abandoned, ...]
