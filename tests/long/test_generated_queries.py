"""Random SELECTs by the thousand. `GENERATED_SEED` says where the seeds begin, `GENERATED_CASES` how many cases there are.

`--log-level=INFO -rP` shows what each seed compared and what was refused.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.generated.cases import Group
from tests.spark.conftest import Opener
from tests.spark.test_generated_queries import CASES, check, run

log = logging.getLogger(__name__)

FIRST = int(os.environ.get("GENERATED_SEED", "1000"))
WANTED = int(os.environ.get("GENERATED_CASES", "5000"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + -(-WANTED // CASES)))
def test_views_equal_batch_after_every_commit(opener: Opener, spark: SparkSession, tmp_path: Path, seed: int) -> None:
    group = Group(seed, changes=1)
    report = run(opener, spark, tmp_path, group)
    log.info("seed %d: %s", seed, report.summary())
    for why, sql in [*report.replaced, *report.refusals]:
        log.info("refused: %s\n    %s", why, sql)
    check(group, report)
    shutil.rmtree(tmp_path, ignore_errors=True)
