"""TPC-H and Nexmark at a larger scale, in more commits, with a restart after each."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark import test_nexmark, test_tpch
from tests.spark.conftest import Opener


def test_nexmark_over_restarts(opener: Opener, spark: SparkSession, tmp_path: Path) -> None:
    test_nexmark.run(opener, spark, tmp_path, list(range(4_000, 44_000, 4_000)), restarts=True)


def test_tpch_over_restarts(opener: Opener, spark: SparkSession, tmp_path: Path) -> None:
    for seed in (4, 5):
        test_tpch.run(opener, spark, tmp_path / str(seed), seed, orders=1_500, more=200, restarts=True)
