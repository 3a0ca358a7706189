from __future__ import annotations

import pytest
import sqlglot

from penstock.plan.nodes import Interval
from penstock.sql import intervals


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INTERVAL '5' SECOND", Interval(micros=5_000_000)),
        ("INTERVAL 5 SECONDS", Interval(micros=5_000_000)),
        ("INTERVAL '250' MILLISECOND", Interval(micros=250_000)),
        ("INTERVAL '1.5' HOUR", Interval(micros=5_400_000_000)),
        ("INTERVAL '2' MONTH", Interval(months=2)),
        ("INTERVAL '1' YEAR", Interval(months=12)),
        ("INTERVAL '5 minutes'", Interval(micros=300_000_000)),
        ("INTERVAL '-5' SECOND", Interval(micros=-5_000_000)),
        ("INTERVAL '1 02:03:04' DAY TO SECOND", Interval(micros=93_784_000_000)),
        ("INTERVAL '1-2' YEAR TO MONTH", Interval(months=14)),
        ("INTERVAL '1' HOUR + INTERVAL '1' MINUTE", Interval(micros=3_660_000_000)),
        ("INTERVAL '0.5' MONTH", None),
        ("INTERVAL '1' MONTH + INTERVAL '1' DAY", None),
        ("INTERVAL '5' PARSEC", None),
        ("5", None),
    ],
)
def test_constant_intervals(sql: str, expected: Interval | None) -> None:
    node = sqlglot.parse_one(f"SELECT {sql}", dialect="spark").expressions[0]
    assert intervals.from_node(node) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", 10_000_000),
        ("5s", 5_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("500ms", 500_000),
        ("soon", None),
        ("", None),
        ("5", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    found = intervals.from_text(text)
    assert (found.micros if found else None) == expected
