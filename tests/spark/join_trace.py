"""Drives join operators of the kernel with steps of rows on both sides, and collects the output of each step.

Every step is one file and one epoch. Several joins over the same inputs run in one query, distinguished by a label.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.kernel import Kernel

from .kernel_trace import Rows, schema_of, write

Spec = dict[str, Any]
# Output rows as JSON, with their weights.
Bag = Counter[str]


@dataclass
class Step:
    """The rows of one epoch and the watermark (epoch ms) after it."""

    left: Rows = ()
    right: Rows = ()
    watermark: int = 0


class JoinTrace:
    """Joins by label: `joins[label] = (operator, spec)`. Output rows of all joins must have the same columns.

    `left` and `right` are DDL, with distinct column names.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        left: str,
        right: str,
        joins: dict[str, tuple[str, Spec]],
        event_time: bool = False,
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.left = schema_of(left).fieldNames()
        self.right = schema_of(right).fieldNames()
        self.ddl = f"side int, __wm timestamp, {left}, {right}"
        self.joins = joins
        self.event_time = event_time
        self.out: list[tuple[str, str, int]] = []
        self.steps = 0
        self.sums: dict[str, Bag] = {label: Counter() for label in joins}
        (folder / "in").mkdir(parents=True)

    def start(self) -> None:
        source = (
            self.spark.readStream.schema(schema_of(self.ddl))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / "in"))
        )
        frames = []
        kernel = Kernel(self.spark._jvm)
        for label, (operator, spec) in self.joins.items():
            sides = []
            for number, columns in enumerate((self.left, self.right)):
                marked = source.withWatermark("__wm", "0 seconds") if self.event_time else source
                # A condition without the event time would be moved below the watermark and keep rows from it.
                mine = (F.col("side") == number) | F.col("__wm").isNull()
                sides.append(marked.where(mine).select(*[f"`{c}`" for c in columns]))
            joined = getattr(kernel, operator).apply(sides[0]._jdf, sides[1]._jdf, json.dumps(spec))
            frame = DataFrame(joined, self.spark)
            data = [F.col(f"`{c}`") for c in frame.columns[:-1]]
            assert frame.columns[-1] == "__weight"
            frames.append(
                frame.select(F.lit(label).alias("label"), F.to_json(F.struct(*data)).alias("row"), "__weight")
            )
        union = frames[0]
        for frame in frames[1:]:
            union = union.union(frame)

        def collect(batch: DataFrame, _epoch: int) -> None:
            self.out += [(r[0], r[1], r[2]) for r in batch.collect()]

        self.query = (
            union.writeStream.outputMode("append")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(collect)
            .start()
        )

    def stop(self) -> None:
        self.query.stop()

    def step(self, step: Step) -> dict[str, Bag]:
        """Feeds one epoch; gives what came out, by label, and adds it to `sums`."""
        self.out = []
        no_left, no_right = (None,) * len(self.left), (None,) * len(self.right)
        stamp = step.watermark * 1000
        rows = [(0, stamp, *r, *no_right) for r in step.left] + [(1, stamp, *no_left, *r) for r in step.right]
        # A row of neither side carries the watermark when there is no data.
        rows.append((2, stamp, *no_left, *no_right))
        write(self.folder / "in" / f"{self.steps:06}.parquet", self.ddl, rows)
        self.steps += 1
        self.query.processAllAvailable()
        result: dict[str, Bag] = {label: Counter() for label in self.joins}
        for label, row, weight in self.out:
            assert weight != 0
            assert row not in result[label], f"{label}: not consolidated: {row}"
            result[label][row] = weight
        for label, change in result.items():
            for row, weight in change.items():
                self.sums[label][row] += weight
                if self.sums[label][row] == 0:
                    del self.sums[label][row]
        return result

    def state_entries(self, *operators: int) -> int:
        """How many entries these stateful operators of the (stopped) query have in their state."""
        return sum(
            self.spark.read.format("statestore")
            .option("operatorId", operator)
            .option("stateVarName", "state")
            .load(str(self.folder / "checkpoint"))
            .count()
            for operator in operators
        )


def rows_of(change: Bag) -> list[dict[str, Any]]:
    """Output rows with positive weight as dictionaries without NULLs, repeated by weight, in a stable order."""
    assert all(weight > 0 for weight in change.values()), change
    return [json.loads(row) for row in sorted(change) for _ in range(change[row])]
