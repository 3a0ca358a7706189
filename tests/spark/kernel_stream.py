"""Drives one kernel operator as a streaming query: a list of steps in, the rows that came out of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

Build = Callable[[DataFrame], DataFrame]


def operator(name: str, spec: Mapping[str, Any]) -> Build:
    """`name.apply(frame, spec)` of the kernel."""

    def apply(frame: DataFrame) -> DataFrame:
        spark = frame.sparkSession
        jvm = spark._jvm
        assert jvm is not None
        out = getattr(jvm.dev.penstock.kernel, name).apply(frame._jdf, json.dumps(spec))
        return DataFrame(out, spark)

    return apply


class KernelStream:
    """A query over a folder to which each step adds one file, so that each step is one epoch with data.

    With a `__wm` column (TIMESTAMP) in the schema its largest value so far is the watermark of the next epoch.
    """

    def __init__(self, spark: SparkSession, folder: Path, schema: str, build: Build) -> None:
        self.spark = spark
        self.folder = folder
        self.schema = schema
        self.build = build
        self.files = 0
        self.batches: list[list[Row]] = []
        self.query: Any = None
        (folder / "in").mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        frame = (
            self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        )
        if "__wm" in frame.columns:
            frame = frame.withWatermark("__wm", "0 seconds")

        def collect(batch: DataFrame, epoch: int) -> None:
            self.batches.append(batch.collect())

        self.query = (
            self.build(frame)
            .writeStream.outputMode("append")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(collect)
            .start()
        )

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            self.query = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def step(self, rows: Sequence[Sequence[Any]], partitions: int = 1) -> list[Row]:
        """Adds the rows as one epoch and gives what came out, the epochs that only move the watermark included."""
        if self.query is None:
            self.start()
        before = len(self.batches)
        self.files += 1
        staging = self.folder / f"step{self.files}"
        frame = self.spark.createDataFrame([tuple(r) for r in rows], self.schema)
        frame.repartition(partitions).write.parquet(str(staging))
        for i, part in enumerate(sorted(staging.glob("part-*.parquet"))):
            part.rename(self.folder / "in" / f"{self.files:05}-{i}.parquet")
        self.query.processAllAvailable()
        return [row for batch in self.batches[before:] for row in batch]

    def state_rows(self) -> int:
        """Rows in the state of all operators after the last epoch."""
        return sum(op["numRowsTotal"] for op in self.query.lastProgress["stateOperators"])


def consolidate(into: Counter[Any], rows: Sequence[Row]) -> Counter[Any]:
    """Adds rows with their weights; what comes to zero is left out, less than zero is an error."""
    for row in rows:
        values = freeze(tuple(row)[:-1])
        into[values] += row["__weight"]
        if into[values] == 0:
            del into[values]
    assert all(n > 0 for n in into.values()), into
    return into


def freeze(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    if isinstance(value, float):
        return "nan" if value != value else value
    return bytes(value) if isinstance(value, bytearray) else value
