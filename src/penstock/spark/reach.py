"""Spark sessions without what runs programs or reads files."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.sql.programs import FORBIDDEN


def close_off(session: SparkSession) -> None:
    """Takes forbidden functions, and files as tables, from a session and from those that are copied from it.

    The parser refuses them first; this holds for whatever the parser overlooks.
    """
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    state = session._jsparkSession.sessionState()
    identifier = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier  # type: ignore[union-attr]
    registries = state.functionRegistry(), state.tableFunctionRegistry()
    for name in map(identifier, FORBIDDEN):
        for registry in registries:
            registry.dropFunction(name)
