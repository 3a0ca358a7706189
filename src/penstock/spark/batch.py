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
from sqlglot import exp

from penstock.catalog.declared import DECLARED, is_declared, without_lengths
from penstock.catalog.objects import Column
from penstock.catalog.types import schema_of, to_arrow
from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Query
from penstock.spark import functions
from penstock.spark.calls import interruptible
from penstock.spark.once import Once
from penstock.spark.reach import close_off
from penstock.spark.results import exchange, given, taken
from penstock.spark.translate import translated
from penstock.spark.typetext import type_text
from penstock.spark.voids import holdable, restored
from penstock.sql.programs import FORBIDDEN

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_SLOW_RULES = (
    "org.apache.spark.sql.catalyst.optimizer.BooleanSimplification",
    "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
)
"""Optimizer rules whose time is cubic in the length of a chain of operators: a minute for 3,000 conditions."""
_LARGE = 20_000
"""The length of a statement, in characters, above which these rules are disabled."""


class BatchReader:
    """Runs batch SQL. Each call has its own Spark session, so names never collide."""

    def __init__(self, spark: SparkSession, *, programs: bool = False) -> None:
        """`programs`: functions that run programs or read files stay callable (the setting `security.allow_programs`)."""
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
            # Otherwise Spark would interpret type hints as those of a vectorized function, and warn if they are not.
            self._functions[name] = udf(function, returns, useArrow=False)
            functions.register(self._spark, name, function, returns)

    def _session(self, tables: Mapping[str, pa.Table], folder: Path | None = None) -> SparkSession:
        # A copy, so that the settings and restrictions of the database apply.
        session = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        for name, table in tables.items():
            given(session, table, folder).createOrReplaceTempView(quoted(name))
        for name, function in self._functions.items():
            session.udf.register(name, function)
        return session

    def select(self, sql: str, tables: Mapping[str, pa.Table], plan: Query | None = None) -> pa.Table:
        """The result of Spark SQL, or of a plan, over `tables`, by name. A result that is too large for memory is refused (PSK-7009)."""
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
                    return arrow(session.sql(sql) if plan is None else Once(session).frame(plan), folder)
            finally:
                context.removeJobTag(tag)

        with translated(), _converting():
            return interruptible(run, lambda: context.cancelJobsWithTag(tag))

    def schema(self, sql: str, tables: Mapping[str, Sequence[Column]], plan: Query | None = None) -> tuple[Column, ...]:
        """The columns of a SELECT, without executing it."""
        with translated():
            session = self._session({n: schema_of(c).empty_table() for n, c in tables.items()})
            made = session.sql(sql) if plan is None else Once(session).frame(plan)
            return tuple(Column(f.name, type_text(f.dataType)) for f in made.schema.fields)

    def has_function(self, name: str) -> bool:
        """Whether Spark knows a function of this name: its own, or one that is registered."""
        with translated():
            return bool(self._spark.catalog.functionExists(quoted(name)))

    def check_columns(self, columns: Iterable[Column]) -> None:
        """Checks that Spark knows every type; otherwise raises Spark's own message."""
        with translated():
            StructType.fromDDL(", ".join(f"{quoted(c.name)} {without_lengths(c.type)}" for c in columns))

    def constants(self, given: Sequence[tuple[Column, exp.Expr]]) -> dict[str, object]:
        """The values of constant expressions, each cast to the type of its column, by column name."""
        if not given:
            return {}
        for c, _ in given:
            to_arrow(c.type)
        items = [f"CAST({e.sql(dialect=DIALECT)} AS {without_lengths(c.type)}) AS {quoted(c.name)}" for c, e in given]
        with translated(), exchange(self._spark) as folder:
            row = arrow(self._spark.sql(f"SELECT {', '.join(items)}"), folder)
        return {c.name: _value(row.column(i), c) for i, (c, _) in enumerate(given)}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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
    """Translates PySpark's errors for a value or type that Arrow or Python cannot represent."""
    try:
        yield
    except PySparkException:
        raise
    except (ValueError, TypeError, OverflowError) as why:
        raise fail("PSK-7001", f"A value cannot be converted to or from Spark: {why}.") from why


def arrow(df: DataFrame, folder: Path | None = None) -> pa.Table:
    """A result in Penstock's form of Spark's types: UTC timestamps in microseconds."""
    kinds = [f.dataType for f in df.schema.fields]
    table = taken(holdable(df), folder)
    columns = [restored(c, kind) for c, kind in zip(table.columns, kinds, strict=True)]
    fields = [_field(n, c.type, type_text(k)) for n, c, k in zip(table.column_names, columns, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _field(name: str, kind: pa.DataType, spark_type: str) -> pa.Field:
    known = is_declared(spark_type) and spark_type != "interval"
    return pa.field(name, kind, metadata={DECLARED: spark_type.encode()} if known else None)
