"""From samples to a line of the table: medians, spreads, ratios, and whether the bars are met."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.work import PENSTOCK, TITLES, Against, AtLeast, Bar, Row

SCALES = {"M rows/s": 1e6}


@dataclass(frozen=True)
class Value:
    """A median, and the smallest and largest sample."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(samples: Sequence[float]) -> Value:
        return Value(statistics.median(samples), min(samples), max(samples))


@dataclass(frozen=True)
class Judged:
    """A bar, in words, with the figure it is about; `met` is None where a competitor is missing."""

    bar: str
    ratio: float | None
    met: bool | None


@dataclass(frozen=True)
class Line:
    """What the table, the file and the picture show of one row."""

    work: str
    row: Row
    values: Mapping[str, Value]
    missing: Mapping[str, str]
    judged: tuple[Judged, ...]


def line(work: str, row: Row, samples: Mapping[str, Sequence[float]], missing: Mapping[str, str]) -> Line:
    values = {who: Value.of(s) for who, s in samples.items() if s}
    judged = tuple(_judge(bar, row, values) for bar in row.bars)
    return Line(work, row, values, missing, judged)


def _judge(bar: Bar, row: Row, values: Mapping[str, Value]) -> Judged:
    own = values.get(PENSTOCK)
    if isinstance(bar, Against):
        sign = "≥" if row.better == "more" else "≤"
        text = f"{sign} {bar.factor:g} × {TITLES[bar.competitor]}"
        other = values.get(bar.competitor)
        if own is None or other is None:
            return Judged(text, None, None)
        ratio = own.median / other.median
        return Judged(text, ratio, ratio >= bar.factor if row.better == "more" else ratio <= bar.factor)
    sign = "≥" if isinstance(bar, AtLeast) else "≤"
    text = f"{sign} {number(bar.value, row)} {row.unit}"
    if own is None:
        return Judged(text, None, None)
    met = own.median >= bar.value if isinstance(bar, AtLeast) else own.median <= bar.value
    return Judged(text, None, met)


def number(value: float, row: Row) -> str:
    """The value as the row writes it, without needless zeros."""
    scaled = value / SCALES.get(row.unit, 1.0)
    text = f"{scaled:,.{row.digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
