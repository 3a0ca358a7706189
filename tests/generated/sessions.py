"""Settings of the Spark session while many small queries start and end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_SETTINGS = {
    # Compiling the code of a query takes longer than a few rows take without.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # One task for each operator.
    "spark.sql.shuffle.partitions": "1",
    # The rows in a state store are counted, so that the test can see them go.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "true",
}

DATABASE = {
    # Nothing here follows event time, so idle queries need not look around.
    "engine.poll_timeout_ms": 10_000,
    "log.wal_mode": "async",
}
"""Settings of the databases."""


@contextmanager
def generated_session(spark: SparkSession) -> Iterator[None]:
    """Queries that start inside keep these settings; afterwards the session is as it was."""
    before = {key: spark.conf.get(key, None) for key in _SETTINGS}
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
