"""Random SELECTs by the thousand. `GENERATED_SEED` says where the seeds begin, `GENERATED_CASES` how many cases there are.

It says on standard output how far it is, and what went wrong when it does; the other seeds are run all the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.generated.running import Report
from tests.spark.conftest import Opener
from tests.spark.test_generated_queries import CASES, REFUSED, described_all, run

FIRST = int(os.environ.get("GENERATED_SEED", "1000"))
WANTED = int(os.environ.get("GENERATED_CASES", "5000"))


def test_views_equal_batch_after_every_commit(
    opener: Opener, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    total = Report()
    begin = time.monotonic()
    for seed in range(FIRST, FIRST + -(-WANTED // CASES)):
        report = run(opener, spark, tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed), ignore_errors=True)
        total.add(report)
        with capfd.disabled():
            sys.stdout.write(f"seed {seed}, {time.monotonic() - begin:.0f} s: {total.summary()}\n")
            sys.stdout.write(described_all(seed, report))
            sys.stdout.flush()
    assert total.cases >= WANTED
    assert not total.failures
    assert total.refusal_rate <= REFUSED, total.refused
