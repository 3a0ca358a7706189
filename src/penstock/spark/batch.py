"""One-shot work in Spark: SELECT over Arrow tables, constant expressions, checks of types and functions."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.catalog.objects import Column
from penstock.catalog.types import schema_of
from penstock.spark import functions
from penstock.spark.calls import interruptible
from penstock.spark.results import exchange, given, taken
from penstock.spark.translate import translated


class BatchReader:
    """Runs batch SQL. Each call has a Spark session of its own, so that names never meet."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._functions: dict[str, Any] = {}

    def register(self, name: str, function: Any, returns: str) -> None:
        """Makes a Python function callable in SQL, in streaming queries and in SELECT."""
        from pyspark.sql.functions import udf

        with translated():
            # Spark would take type hints for those of its own vectorized functions, and warn where they are not.
            self._functions[name] = udf(function, returns, useArrow=False)
            functions.register(self._spark, name, function, returns)

    def _session(self, tables: Mapping[str, pa.Table], folder: Path | None = None) -> SparkSession:
        session = self._spark.newSession()
        for name, table in tables.items():
            given(session, table, folder).createOrReplaceTempView(f"`{name}`")
        for name, function in self._functions.items():
            session.udf.register(name, function)
        return session

    def select(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of Spark SQL in which `tables` gives the names their rows. One that is too large for memory is refused (PSK-7009)."""
        context = self._spark.sparkContext
        tag = f"penstock-select-{uuid.uuid4().hex}"

        def run() -> pa.Table:
            context.addJobTag(tag)
            context.setInterruptOnCancel(True)
            try:
                with exchange(self._spark) as folder:
                    return arrow(self._session(tables, folder).sql(sql), folder)
            finally:
                context.removeJobTag(tag)

        with translated():
            return interruptible(run, lambda: context.cancelJobsWithTag(tag))

    def schema(self, sql: str, tables: Mapping[str, Sequence[Column]]) -> tuple[Column, ...]:
        """The columns that a SELECT has; nothing is run."""
        with translated():
            session = self._session({n: schema_of(c).empty_table() for n, c in tables.items()})
            return tuple(Column(f.name, f.dataType.simpleString()) for f in session.sql(sql).schema.fields)

    def check_columns(self, columns: Iterable[Column]) -> None:
        """Spark knows every type; what it does not know is refused with its own words."""
        with translated():
            StructType.fromDDL(", ".join(f"`{c.name}` {c.type}" for c in columns))

    def defaults(self, columns: Iterable[Column]) -> dict[str, object]:
        """The values of DEFAULT expressions."""
        given = [c for c in columns if c.default is not None]
        if not given:
            return {}
        with translated():
            text = ", ".join(f"CAST({c.default} AS {c.type}) AS `{c.name}`" for c in given)
            row = arrow(self._spark.sql(f"SELECT {text}")).to_pylist()[0]
        return {c.name: row[c.name] for c in given}


def arrow(df: DataFrame, folder: Path | None = None) -> pa.Table:
    """A result with Spark's types as Penstock writes them: UTC timestamps in microseconds."""
    table = taken(df, folder)
    columns = [Column(f.name, f.dataType.simpleString()) for f in df.schema.fields]
    # A column of bare NULLs has no type that an object could have, but a result may.
    schema = pa.schema([pa.field(c.name, pa.null()) if c.type == "void" else schema_of([c]).field(0) for c in columns])
    return pa.table(
        [c.cast(f.type) if c.type != f.type else c for c, f in zip(table.columns, schema, strict=True)], schema=schema
    )
