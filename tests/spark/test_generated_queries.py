"""Random SELECTs over random tables: after every commit of a random trace each view equals the result of batch SQL.

The seeds are the same in every run; `tests/long` runs others. A failing case prints its schema, SELECT and trace, and the
command that runs it alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.effort import times
from tests.generated.cases import Group
from tests.generated.reproduce import described
from tests.generated.running import Report, Running, before_the_end
from tests.generated.sessions import DATABASE
from tests.spark.conftest import CONFIG, Opener

CASES = 25
"""Cases of one seed; they share a database and a trace."""

REFUSED = 0.15
"""The largest part of a seed's SELECTs that may be refused: the generator makes what the SQL reference offers."""

REPLACED = 2
"""Base views of one seed that may be refused before there are two."""

UNMEASURED = 8
"""Comparisons of one seed that neither Spark batch nor DuckDB can make, because neither can run the query."""


def run(opener: Opener, spark: SparkSession, folder: Path, group: Group) -> Report:
    """All cases of a seed. Some seeds make their views before there are rows, some restart, some begin with a commit of nothing."""
    seed = group.seed
    running = Running(lambda: opener(folder, config={**CONFIG, **DATABASE}), spark, group)
    if seed % 4 != 1:
        running.load()
    running.create(group.cases(), CASES)
    report = running.run(before_the_end, restart=0 if seed % 4 == 3 else None, empty_first=seed % 8 == 5)
    running.db.close()
    return report


def check(group: Group, report: Report) -> None:
    assert not report.failures, "\n".join(described(group, f) for f in report.failures)
    assert report.cases == CASES
    assert report.refusal_rate <= REFUSED, report.refusals
    assert len(report.replaced) <= REPLACED, report.replaced
    assert report.unmeasured <= UNMEASURED


@pytest.mark.parametrize("seed", range(times(1)))
def test_views_equal_batch_after_every_commit(opener: Opener, spark: SparkSession, tmp_path: Path, seed: int) -> None:
    group = Group(seed, changes=1)
    check(group, run(opener, spark, tmp_path, group))
