"""The result of a SELECT over plain rows: from Spark batch, which decides, and from DuckDB, which is fast."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import sqlglot
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.generated.schemas import DUCK_TYPES, Row, Table
from tests.generated.sessions import batch_session


class CannotSay(Exception):
    """This oracle does not take this query."""


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}'"
        case dt.datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case dt.date():
            return f"DATE '{value}'"
        case float():
            return f"CAST('{value}' AS DOUBLE)"
        case _:
            return str(value)


def _rows(rows: Sequence[Row]) -> str:
    return ", ".join(f"({', '.join(literal(v) for v in row)})" for row in rows)


def _exact(sql: str) -> str:
    """In a view approx_count_distinct is exact; Spark may count 1 where there are two values."""
    return sql.replace("approx_count_distinct(", "count(DISTINCT ")


class SparkBatch:
    """Spark over local rows."""

    def __init__(self, spark: SparkSession, tables: Sequence[Table]) -> None:
        self._session = batch_session(spark)
        self._tables = tables

    def load(self, rows: Mapping[str, Sequence[Row]], views: Mapping[str, str]) -> None:
        for table in self._tables:
            names = ", ".join(c.name for c in table.columns)
            types = ", ".join(f"CAST({c.name} AS {c.type}) AS {c.name}" for c in table.columns)
            have = rows[table.name]
            source = f"VALUES {_rows(have)}" if have else f"VALUES ({', '.join('NULL' for _ in table.columns)})"
            text = f"SELECT {types} FROM {source} AS v({names})" + ("" if have else " WHERE false")
            self._session.sql(text).createOrReplaceTempView(table.name)
        for name, sql in views.items():
            self._session.sql(_exact(sql)).createOrReplaceTempView(name)

    def answer(self, sql: str) -> list[Row]:
        try:
            return [tuple(r) for r in self._session.sql(_exact(sql)).collect()]
        except (PySparkException, Py4JError) as error:
            raise CannotSay(str(error).split("\n")[0]) from error


class Duck:
    """DuckDB over the same rows; the SELECT is translated."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._base = duckdb.connect()
        for table in tables:
            columns = ", ".join(f"{c.name} {DUCK_TYPES.get(c.type, c.type)}" for c in table.columns)
            self._base.execute(f"CREATE TABLE {table.name} ({columns})")

    def load(self, rows: Mapping[str, Sequence[Row]], views: Mapping[str, str]) -> None:
        for table in self._tables:
            self._base.execute(f"DELETE FROM {table.name}")
            if rows[table.name]:
                self._base.execute(f"INSERT INTO {table.name} VALUES {_rows(rows[table.name])}")
        for name, sql in views.items():
            self._base.execute(f"CREATE OR REPLACE VIEW {name} AS {translated(sql)}")

    def answer(self, sql: str) -> list[Row]:
        cursor = self._base.cursor()
        try:
            cursor.execute("SET TimeZone = 'UTC'")
            return cursor.execute(translated(sql)).fetchall()
        except (duckdb.Error, sqlglot.errors.SqlglotError) as error:
            raise CannotSay(str(error).split("\n")[0]) from error


def translated(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]
