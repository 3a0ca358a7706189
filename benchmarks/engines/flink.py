"""Flink, through its Python package: SQL over Parquet files, in its own JVM, with RocksDB and a checkpoint every second."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engines.query import SILENCE_S

JARS = "jars"
"""The folder, in its virtual environment, of what its Parquet format needs."""

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.heap.size": "1g",
    "taskmanager.memory.managed.size": "512m",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": "1 s",
    "table.local-time-zone": "UTC",
    "env.java.opts.all": "-XX:+UseG1GC",
}


def jars() -> list[Path]:
    return sorted((Path(sys.prefix) / JARS).glob("*.jar"))


class Flink:
    """One environment; a query is a job over files that are all there when it starts."""

    def __init__(self, folder: Path) -> None:
        from pyflink.common import Configuration
        from pyflink.table import EnvironmentSettings, TableEnvironment

        settings = Configuration()
        for key, value in SETTINGS.items():
            settings.set_string(key, value)
        settings.set_string("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
        settings.set_string("pipeline.jars", ";".join(jar.as_uri() for jar in jars()))
        mode = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
        self._tables: Any = TableEnvironment.create(mode)

    def execute(self, sql: str) -> None:
        self._tables.execute_sql(sql)

    def seconds(self, select: str) -> float:
        """How long the job itself takes, from its start to its end; planning it and starting a cluster for it are not counted."""
        from pyflink.table import TableDescriptor

        nowhere = TableDescriptor.for_connector("blackhole").build()
        running = self._tables.sql_query(select).execute_insert(nowhere)
        running.wait(int(SILENCE_S * 1_000))
        return float(running.get_job_client().get_job_execution_result().result().get_net_runtime()) / 1_000

    def changes(self, select: str) -> Iterator[tuple[int, list[Any]]]:
        """The rows of a result as they change, each with 1 or, if it is taken back, -1."""
        from pyflink.common import RowKind

        gone = (RowKind.DELETE, RowKind.UPDATE_BEFORE)
        with self._tables.sql_query(select).execute().collect() as rows:
            for row in rows:
                yield (-1 if row.get_row_kind() in gone else 1), list(row)


def write(folder: Path, batches: Mapping[str, list[pa.RecordBatch]]) -> None:
    """One Parquet file for each batch, in a folder for each table; times in milliseconds, which is as fine as Flink's event time."""
    for name, of_table in batches.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, batch in enumerate(of_table):
            path = folder / name / f"{number:06d}.parquet"
            pq.write_table(
                pa.Table.from_batches([batch]), path, coerce_timestamps="ms", allow_truncated_timestamps=True
            )
