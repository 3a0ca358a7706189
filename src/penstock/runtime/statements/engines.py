"""Whether an expression may be evaluated without Spark: settings of Spark can change what it means."""

from __future__ import annotations

from penstock.config import Settings
from penstock.sql.bind import BatchQuery

_HARMLESS = ("spark.sql.codegen.", "spark.sql.shuffle.", "spark.sql.streaming.", "spark.sql.adaptive.", "spark.sql.ui.")


def spark_as_known(settings: Settings) -> bool:
    """False if settings may change the meaning of literals, casts, arithmetic or comparisons."""
    return all(not k.startswith("spark.sql.") or k.startswith(_HARMLESS) for k in settings.spark.conf)


def for_duckdb(settings: Settings, query: BatchQuery) -> str | None:
    """The text with which DuckDB answers the query as Spark would; None if only Spark can."""
    return query.duckdb_sql if spark_as_known(settings) else None
