"""Random SELECTs by the thousand. `GENERATED_SEED` says where the seeds begin, `GENERATED_CASES` how many cases there are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Opener
from tests.spark.test_generated_queries import CASES, check, run

FIRST = int(os.environ.get("GENERATED_SEED", "1000"))
WANTED = int(os.environ.get("GENERATED_CASES", "5000"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + -(-WANTED // CASES)))
def test_views_equal_batch_after_every_commit(opener: Opener, spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(seed, run(opener, spark, tmp_path, seed))
    shutil.rmtree(tmp_path, ignore_errors=True)
