"""Drives a kernel operator with a list of steps and collects the output of each.

A step is a list of rows, written as one file; each becomes one epoch. The query may be stopped and started from its
checkpoint between steps.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from penstock.spark.kernel import Kernel

Rows = Sequence[tuple[Any, ...]]
Bag = Counter[tuple[Any, ...]]


def schema_of(ddl: str) -> StructType:
    schema = _parse_datatype_string(ddl)
    assert isinstance(schema, StructType)
    return schema


def write(path: Path, ddl: str, rows: Rows) -> None:
    """Writes rows as one Parquet file that appears at once."""
    schema = to_arrow_schema(schema_of(ddl), timezone="UTC")
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    table = pa.Table.from_arrays(
        [pa.array(list(c), type=f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    hidden = path.with_name("." + path.name)
    pq.write_table(table, hidden)
    hidden.rename(path)


def canonical(value: Any) -> Any:
    """A form in which equal SQL values are equal: floats to ten digits, nine after the point, one NaN, positive zeros."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return 0.0 if abs(value) < 1e-9 else float(f"{value:.10g}")
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(canonical(v) for v in value)
    return value


def bag(rows: Iterable[Sequence[Any]]) -> Bag:
    return Counter(canonical(tuple(r)) for r in rows)


def apply(spark: SparkSession, operator: str, frame: DataFrame, spec: dict[str, Any]) -> DataFrame:
    processor = getattr(Kernel(spark._jvm), operator)
    return DataFrame(processor.apply(frame._jdf, json.dumps(spec)), spark)


class Trace:
    """One running operator."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        operator: str | Callable[[DataFrame], DataFrame],
        ddl: str,
        spec: dict[str, Any] | None = None,
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.operator = operator
        self.ddl = ddl
        self.spec = spec or {}
        self.epochs: dict[int, list[tuple[Any, ...]]] = {}
        self.state: Bag = Counter()
        self.steps = 0
        (folder / "in").mkdir()

    def start(self) -> None:
        source = (
            self.spark.readStream.schema(schema_of(self.ddl))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / "in"))
        )
        if isinstance(self.operator, str):
            frame = apply(self.spark, self.operator, source, self.spec)
        else:
            frame = self.operator(source)
        self.columns = frame.columns
        self.types = [f.dataType.simpleString() for f in frame.schema.fields]

        def collect(batch: DataFrame, epoch: int) -> None:
            self.epochs[epoch] = [tuple(r) for r in batch.collect()]

        self.query = (
            frame.writeStream.outputMode("append")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(collect)
            .start()
        )

    def stop(self) -> None:
        self.query.stop()

    def step(self, rows: Rows) -> list[tuple[Any, ...]]:
        """Feeds one epoch and gives its output rows, which must be a consolidated change of the state so far."""
        before = set(self.epochs)
        write(self.folder / "in" / f"{self.steps:06}.parquet", self.ddl, rows)
        self.steps += 1
        self.query.processAllAvailable()
        out = [r for e in sorted(set(self.epochs) - before) for r in self.epochs[e]]
        signs: dict[tuple[Any, ...], int] = {}
        for row in out:
            data, weight = canonical(row[:-1]), row[-1]
            assert weight != 0
            assert signs.setdefault(data, weight) * weight > 0, f"retracted and asserted in one epoch: {data}"
            self.state[data] += weight
        assert all(n >= 0 for n in self.state.values()), f"retracted what is not there: {-self.state}"
        self.state = +self.state
        return out


def collections(steps: Sequence[Rows]) -> list[Bag]:
    """What the input holds after each step; the last column of a row is its weight."""
    total: Bag = Counter()
    out = []
    for rows in steps:
        for r in rows:
            total[r[:-1]] += r[-1]
        total = +total
        out.append(Counter(total))
    return out


def expected(spark: SparkSession, folder: Path, ddl: str, steps: Sequence[Rows], sql: str) -> list[Bag]:
    """The answers of a batch query over the input after each step, computed in one go.

    `sql` reads `input`, which has the data columns and `step`; its first result column is `step`.
    """
    rows = [(i, *r) for i, b in enumerate(collections(steps)) for r, n in b.items() for _ in range(n)]
    path = folder / "expected.parquet"
    write(path, "step int, " + ddl.rpartition(",")[0], rows)
    spark.read.parquet(str(path)).createOrReplaceTempView("input")
    out: list[Bag] = [Counter() for _ in steps]
    for r in spark.sql(sql).collect():
        out[r[0]][canonical(tuple(r[1:]))] += 1
    return out
