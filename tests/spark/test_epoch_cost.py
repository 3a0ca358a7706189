"""The work that the kernel removes from an epoch, and the work that it must keep."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.session import jvm

EXCLUDED = "spark.sql.optimizer.excludedRules"


def _once(frame: DataFrame) -> Any:
    return jvm().PlanOnce.of(frame._jdf)


def test_a_plan_is_optimized_when_its_query_starts(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    once = _once(rate.select((F.lit(1) + F.lit(2)).alias("three"), "value").where("value > 1 AND true"))
    plan = once.queryExecution().analyzed().toString()
    assert "3 AS three" in plan
    assert "AND true" not in plan
    assert "ConstantFolding" in once.sparkSession().conf().get(EXCLUDED)
    assert not spark.conf.get(EXCLUDED, "")


def test_a_clock_is_read_in_every_epoch(spark: SparkSession) -> None:
    once = _once(spark.readStream.format("rate").load().select(F.current_timestamp().alias("now")))
    assert "current_timestamp()" in once.queryExecution().analyzed().toString()
    assert "ConstantFolding" not in once.sparkSession().conf().get(EXCLUDED, "")


def test_settings_of_yarn_are_not_sent_to_tasks(spark: SparkSession) -> None:
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    assert settings.get("yarn.nodemanager.vmem-pmem-ratio") is None
    assert settings.get("fs.AbstractFileSystem.file.impl") is not None
