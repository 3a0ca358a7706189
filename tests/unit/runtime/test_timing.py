"""Percentiles of durations."""

from __future__ import annotations

import random

import pytest

from penstock.runtime.jobs.timing import Timing


def test_percentiles_are_at_most_a_tenth_off() -> None:
    chance = random.Random(5)
    durations = sorted(chance.lognormvariate(3, 1.5) for _ in range(10_000))
    timing = Timing()
    assert timing.percentile(0.5) is None
    for ms in durations:
        timing.add(ms)
    for share in (0.5, 0.9, 0.99):
        exact = durations[int(len(durations) * share) - 1]
        assert timing.percentile(share) == pytest.approx(max(1.0, exact), rel=0.1)
    assert (timing.count, timing.total_ms) == (10_000, pytest.approx(sum(durations)))


def test_what_is_very_short_or_long_counts() -> None:
    timing = Timing()
    for ms in (0.0, 0.2, 1e9):
        timing.add(ms)
    assert timing.percentile(0.5) == 1.0
    assert timing.percentile(1.0) == 2.0**20
