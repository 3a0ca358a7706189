"""Random SELECTs by the thousand. `GENERATED_SEED` says where the seeds begin, `GENERATED_CASES` how many cases there are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from tests.generated.running import Report
from tests.spark.conftest import Opener
from tests.spark.test_generated_queries import CASES, REFUSED, run

FIRST = int(os.environ.get("GENERATED_SEED", "1000"))
WANTED = int(os.environ.get("GENERATED_CASES", "5000"))


def test_views_equal_batch_after_every_commit(opener: Opener, spark: SparkSession, tmp_path: Path) -> None:
    total = Report()
    seed = FIRST
    while total.cases < WANTED:
        total.add(run(opener, spark, tmp_path / str(seed), seed, changes=4, empty_first=True))
        shutil.rmtree(tmp_path / str(seed), ignore_errors=True)
        seed += 1
    assert seed - FIRST >= WANTED // CASES
    assert total.refusal_rate <= REFUSED, total.refused
