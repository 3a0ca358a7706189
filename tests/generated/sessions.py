"""Settings of databases and sessions in which many small queries start and end."""

from __future__ import annotations

from pyspark.sql import SparkSession

# Compiling the code of a query takes longer than a few rows take without.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

PLAIN = {
    **{f"spark.conf.{key}": value for key, value in _INTERPRETED.items()},
    # One task for each operator.
    "spark.shuffle_partitions": 1,
}

DATABASE = {
    **PLAIN,
    # Nothing here follows event time, so idle queries need not look around.
    "engine.poll_timeout_ms": 10_000,
    "log.wal_mode": "async",
}


def batch_session(spark: SparkSession) -> SparkSession:
    """A session of its own for batch queries over few rows."""
    session = spark.newSession()
    for key, value in {
        **_INTERPRETED,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }.items():
        session.conf.set(key, value)
    return session
