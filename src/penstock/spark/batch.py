"""One-shot work in Spark: SELECT over Arrow tables, constant expressions, checks of types and functions."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.catalog.objects import Column
from penstock.catalog.types import schema_of
from penstock.spark.calls import interruptible
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
            made = udf(function, returns, useArrow=False)
            self._spark.udf.register(name, made)
            self._functions[name] = made

    def _session(self, tables: Mapping[str, pa.Table]) -> SparkSession:
        session = self._spark.newSession()
        for name, table in tables.items():
            frame(session, table).createOrReplaceTempView(f"`{name}`")
        for name, function in self._functions.items():
            session.udf.register(name, function)
        return session

    def select(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of Spark SQL in which `tables` gives the names their rows."""
        context = self._spark.sparkContext
        tag = f"penstock-select-{uuid.uuid4().hex}"

        def run() -> pa.Table:
            context.addJobTag(tag)
            context.setInterruptOnCancel(True)
            try:
                return arrow(self._session(tables).sql(sql))
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


def frame(session: SparkSession, table: pa.Table) -> DataFrame:
    if table.num_rows == 0:
        from pyspark.sql.pandas.types import from_arrow_schema

        return session.createDataFrame([], from_arrow_schema(table.schema))
    return session.createDataFrame(table)


def arrow(df: DataFrame) -> pa.Table:
    """A result with Spark's types as Penstock writes them: UTC timestamps in microseconds."""
    table = df.toArrow()
    columns = [Column(f.name, f.dataType.simpleString()) for f in df.schema.fields]
    # A column of bare NULLs has no type that an object could have, but a result may.
    schema = pa.schema([pa.field(c.name, pa.null()) if c.type == "void" else schema_of([c]).field(0) for c in columns])
    return pa.table(
        [c.cast(f.type) if c.type != f.type else c for c, f in zip(table.columns, schema, strict=True)], schema=schema
    )
