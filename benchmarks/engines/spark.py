"""A program as one writes it by hand for Structured Streaming: Parquet files in, a file source, `foreachBatch` out.

Its session has the settings of Penstock's, so that what is compared is the way the rows go and not the configuration.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import SCHEMA
from benchmarks.engines.query import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMING = "spark.sql.streaming."
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Xss16m -XX:+UseG1GC",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.locality.wait": "0",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    STREAMING + "stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    STREAMING + "stateStore.rocksdb.boundedMemoryUsage": "true",
    STREAMING + "stateStore.rocksdb.maxMemoryUsageMB": "512",
    STREAMING + "stateStore.rocksdb.trackTotalNumberOfRows": "false",
    STREAMING + "stateStore.checkpointFormatVersion": "2",
    STREAMING + "checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    STREAMING + "minBatchesToRetain": "10",
    STREAMING + "metricsEnabled": "false",
    STREAMING + "pollingDelay": "1ms",
}


@contextmanager
def opened() -> Iterator[tuple[SparkSession, Path]]:
    """A session, and a folder for its files."""
    from pyspark.sql import SparkSession

    folder = Path(tempfile.mkdtemp(prefix="spark-bench-"))
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", str(folder / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session, folder
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Files:
    """Parquet files, one for each batch, in a folder for each stream."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def stream(self, session: SparkSession, name: str, schema: pa.Schema) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        folder = self._folder / name
        folder.mkdir(parents=True)
        return session.readStream.schema(from_arrow_schema(schema)).parquet(str(folder))

    def push(self, name: str, batch: pa.RecordBatch) -> None:
        # The file source passes over names with an underscore, so it never sees half a file.
        hidden = self._folder / name / f"_{self._count:06d}"
        pq.write_table(pa.Table.from_batches([batch]), hidden)
        hidden.rename(self._folder / name / f"{self._count:06d}.parquet")
        self._count += 1


class SparkQuery(Query):
    """`transform` over the files of a folder, from a checkpoint folder, to this process."""

    def __init__(
        self,
        session: SparkSession,
        folder: Path,
        name: str,
        transform: Callable[[DataFrame], DataFrame],
        mode: Literal["append", "update"] = "append",
    ) -> None:
        self._folder = folder / name
        self._files = Files(self._folder)
        self._results: queue.SimpleQueue[pa.Table] = queue.SimpleQueue()
        frame = self._files.stream(session, "in", SCHEMA)
        self._running = (
            transform(frame)
            .writeStream.outputMode(mode)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(self._receive)
            .start()
        )

    def _receive(self, frame: DataFrame, epoch: int) -> None:
        table = frame.toArrow()
        if table.num_rows:
            self._results.put(table)

    def push(self, batch: pa.RecordBatch) -> None:
        self._files.push("in", batch)

    def poll(self, timeout: float) -> pa.Table | None:
        try:
            return self._results.get(timeout=timeout)
        except queue.Empty:
            failure = self._running.exception()
            if failure is not None:
                raise failure from None
            return None

    def close(self) -> None:
        self._running.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
