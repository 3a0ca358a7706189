"""Removes functions that run programs or read files from Spark sessions."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession

from penstock.sql.programs import FORBIDDEN


def close_off(session: SparkSession) -> None:
    """Removes forbidden functions, and files as tables, from a session and its copies.

    The parser refuses them first; this is the second line of defence.
    """
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    jvm: Any = session._jvm
    identifier, some = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier, jvm.scala.Some
    # Since 4.3 Spark registers its own functions as system.builtin.name.
    owner = (some("builtin"), some("system")) if _version() >= (4, 3) else ()
    state = session._jsparkSession.sessionState()
    registries = state.functionRegistry(), state.tableFunctionRegistry()
    for name in FORBIDDEN:
        for registry in registries:
            registry.dropFunction(identifier(name, *owner))


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in pyspark.__version__.split(".")[:2])
