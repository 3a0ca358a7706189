"""Spark sessions without what runs programs or reads files."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession

from penstock.sql.programs import FORBIDDEN


def close_off(session: SparkSession) -> None:
    """Takes forbidden functions, and files as tables, from a session and from those that are copied from it.

    The parser refuses them first; this holds for whatever the parser overlooks.
    """
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    jvm: Any = session._jvm
    identifier, some = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier, jvm.scala.Some
    # Since 4.3 Spark's registries know a function of its own as system.builtin.name.
    owner = (some("builtin"), some("system")) if _version() >= (4, 3) else ()
    state = session._jsparkSession.sessionState()
    registries = state.functionRegistry(), state.tableFunctionRegistry()
    for name in FORBIDDEN:
        for registry in registries:
            registry.dropFunction(identifier(name, *owner))


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in pyspark.__version__.split(".")[:2])
