"""What a work is: a program for each competitor, and the rows of the table that its figures make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

PENSTOCK = "penstock"
SPARK = "spark"
FLINK = "flink"
LAMINAR = "laminardb"
DUCKDB = "duckdb"
TITLES = {
    PENSTOCK: "Penstock",
    SPARK: "Spark by hand",
    FLINK: "Flink",
    LAMINAR: "LaminarDB",
    DUCKDB: "DuckDB, batch",
}

Figures = dict[str, list[float]]
Program = Callable[[bool], Figures]
"""Runs in a process of its own; True: the small size. Gives one or more samples of each figure."""


class Partly(Exception):
    """Some figures of a program, and why the others are missing."""

    def __init__(self, figures: Figures, why: str) -> None:
        super().__init__(why)
        self.figures = figures


@dataclass(frozen=True)
class AtLeast:
    value: float


@dataclass(frozen=True)
class AtMost:
    value: float


@dataclass(frozen=True)
class Against:
    """Penstock's figure as a multiple of a competitor's in the same run: at least, or at most, `factor`."""

    competitor: str
    factor: float


Bar = AtLeast | AtMost | Against


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, how it is written and what is asked of it."""

    title: str
    figure: str
    unit: str
    bars: tuple[Bar, ...] = ()
    better: Literal["more", "less"] = "more"
    digits: int = 2
    refused: Mapping[str, str] = field(default_factory=dict)
    """What of it a competitor cannot do, where it is not asked for the figure."""


@dataclass(frozen=True)
class Work:
    """`programs` are run `repeats` times each, in turn, each time in a new process."""

    name: str
    programs: Mapping[str, Program]
    rows: tuple[Row, ...]
    repeats: int = 3
    timeout_s: float = 300.0
