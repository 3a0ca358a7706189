"""One-shot work in Spark: SELECT over Arrow tables, constant expressions, checks of types and functions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.catalog.objects import Column
from penstock.catalog.types import schema_of, to_arrow
from penstock.errors import fail
from penstock.spark import functions
from penstock.spark.calls import interruptible
from penstock.spark.reach import close_off
from penstock.spark.results import exchange, given, taken
from penstock.spark.translate import translated
from penstock.spark.voids import arrow_type, holdable
from penstock.sql.programs import FORBIDDEN
from penstock.sql.script import parse_constant

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_SLOW_RULES = (
    "org.apache.spark.sql.catalyst.optimizer.BooleanSimplification",
    "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
)
"""Rules that take the third power of the length of a chain of operators: 3,000 conditions, a minute."""
_LARGE = 20_000
"""Characters of a statement from which they are left out."""


class BatchReader:
    """Runs batch SQL. Each call has a Spark session of its own, so that names never meet."""

    def __init__(self, spark: SparkSession, *, programs: bool = False) -> None:
        """`programs`: what runs programs or reads files stays callable (the setting `security.allow_programs`)."""
        self._spark = spark
        self._programs = programs
        self._functions: dict[str, Any] = {}
        if not programs:
            with translated():
                close_off(spark)

    def register(self, name: str, function: Any, returns: str) -> None:
        """Makes a Python function callable in SQL, in streaming queries and in SELECT."""
        from pyspark.sql.functions import udf

        if not self._programs and name.lower() in FORBIDDEN:
            raise fail(
                "PSK-1015", f"{name} is a function of Spark that statements cannot call.", hint="Choose another name."
            )
        with translated():
            # Spark would take type hints for those of its own vectorized functions, and warn where they are not.
            self._functions[name] = udf(function, returns, useArrow=False)
            functions.register(self._spark, name, function, returns)

    def _session(self, tables: Mapping[str, pa.Table], folder: Path | None = None) -> SparkSession:
        # A copy, so that the settings of the database hold, and what it has been closed off from stays so.
        session = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        for name, table in tables.items():
            given(session, table, folder).createOrReplaceTempView(quoted(name))
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
                    session = self._session(tables, folder)
                    if len(sql) > _LARGE:
                        _without_slow_rules(session)
                    return arrow(session.sql(sql), folder)
            finally:
                context.removeJobTag(tag)

        with translated(), _converting():
            return interruptible(run, lambda: context.cancelJobsWithTag(tag))

    def schema(self, sql: str, tables: Mapping[str, Sequence[Column]]) -> tuple[Column, ...]:
        """The columns that a SELECT has; nothing is run."""
        with translated():
            session = self._session({n: schema_of(c).empty_table() for n, c in tables.items()})
            return tuple(Column(f.name, f.dataType.simpleString()) for f in session.sql(sql).schema.fields)

    def check_columns(self, columns: Iterable[Column]) -> None:
        """Spark knows every type; what it does not know is refused with its own words."""
        with translated():
            StructType.fromDDL(", ".join(f"{quoted(c.name)} {c.type}" for c in columns))

    def defaults(self, columns: Iterable[Column]) -> dict[str, object]:
        """The values of DEFAULT expressions."""
        given = [c for c in columns if c.default is not None]
        if not given:
            return {}
        for c in given:
            to_arrow(c.type)
        # A stored default goes the same way as one that is being declared: the file may have been changed by hand.
        items = [f"CAST({_default(c, self._programs)} AS {c.type}) AS {quoted(c.name)}" for c in given]
        with translated():
            row = arrow(self._spark.sql(f"SELECT {', '.join(items)}"))
        return {c.name: _value(row.column(i), c) for i, c in enumerate(given)}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _default(column: Column, programs: bool) -> str:
    assert column.default is not None
    return parse_constant(column.default, programs=programs).sql(dialect="spark")


def _value(values: pa.ChunkedArray, column: Column) -> object:
    try:
        return values[0].as_py()
    except (ValueError, OverflowError) as why:
        raise fail("PSK-5003", f"The default of column {column.name!r} does not fit: {why}.") from None


def _without_slow_rules(session: SparkSession) -> None:
    given = session.conf.get(_EXCLUDED, "")
    session.conf.set(_EXCLUDED, ",".join([*([given] if given else []), *_SLOW_RULES]))


@contextmanager
def _converting() -> Iterator[None]:
    """PySpark's own errors for a value or type that Arrow or Python has not."""
    try:
        yield
    except PySparkException:
        raise
    except (ValueError, TypeError, OverflowError) as why:
        raise fail("PSK-7001", f"A value cannot be taken to or from Spark: {why}.") from why


def arrow(df: DataFrame, folder: Path | None = None) -> pa.Table:
    """A result with Spark's types as Penstock writes them: UTC timestamps in microseconds."""
    df = holdable(df)
    table = taken(df, folder)
    schema = pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in df.schema.fields])
    return pa.table(
        [c.cast(f.type) if c.type != f.type else c for c, f in zip(table.columns, schema, strict=True)], schema=schema
    )
