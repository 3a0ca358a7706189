"""The generated tests of the Spark tier with many more examples, new ones in every run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession
from tests.spark import test_generated_chains as chains
from tests.spark import test_generated_tables as tables
from tests.spark import test_generated_windows as windows
from tests.spark import test_lateness as lateness
from tests.spark.conftest import Opener

many = settings(
    max_examples=int(os.environ.get("LONG_EXAMPLES", "25")),
    database=None,
    phases=[Phase.explicit, Phase.generate],
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("type_", ["BIGINT", "TIMESTAMP"])
def test_windows(opener: Opener, type_: str) -> None:
    @many
    @given(windows.seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            windows.run(opener, Path(folder), windows.VIEWS, windows.trace_of(seed), type_)

    check()


@pytest.mark.parametrize("queries", lateness.OUTPUTS, ids=["windows", "sessions", "joins", "chains"])
def test_lateness(opener: Opener, queries: str) -> None:
    @many
    @given(windows.seeds)
    def check(seed: int) -> None:
        results, late = lateness.groupings(opener, queries, seed)
        assert all(got == next(iter(results.values())) for got in results.values()), queries
        assert all(counts == next(iter(late.values())) for counts in late.values()), queries

    check()


@pytest.mark.parametrize("selects", [tables.AGGREGATES, tables.SHAPES], ids=["aggregates", "shapes"])
def test_tables(opener: Opener, spark: SparkSession, selects: dict[str, str]) -> None:
    @many
    @given(windows.seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            tables.run(opener, spark, Path(folder), selects, tables.trace_of(seed))

    check()


def test_chains(opener: Opener, spark: SparkSession) -> None:
    @many
    @given(windows.seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            chains.run(opener, spark, Path(folder), chains.trace_of(seed))

    check()
