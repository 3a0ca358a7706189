"""PySpark's context in our own JVM. PySpark keeps its context, session and gateway in class attributes, and assumes one JVM per process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from penstock.errors import fail
from penstock.spark.gateway import Gateway
from penstock.spark.process import JvmProcess

_ASKED_OFTEN = (
    "PythonSQLUtils",
    "PythonUtils",
    "functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.functions",
)
"""Names that PySpark resolves in the JVM at every call, for which the JVM searches all jars; the result is cached."""


def check_free() -> None:
    """Refuses to start if the program has started its own Spark (PSK-0008)."""
    if SparkContext._active_spark_context is not None:
        raise fail(
            "PSK-0008",
            "This process already runs its own Spark.",
            hint="Stop it, or open the database in another process.",
        )


def open_context(gateway: Gateway) -> SparkSession:
    """Creates the Spark context of a JVM, and a session in it."""
    # PySpark would print each query error as JSON on the terminal; Penstock reports it itself.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The program's own stopped context may have left its gateway.
    _use(gateway)
    with _own_interrupts():
        context = SparkContext(gateway=gateway)
    _mute_end(context._accumulatorServer, gateway.proc)
    for name in _ASKED_OFTEN:
        setattr(context._jvm, name, getattr(context._jvm, name))
    return SparkSession(context)


def forget_context(gateway: Gateway, context: SparkContext | None = None) -> None:
    """Makes room for a new context in PySpark. Objects of the old one keep raising the error of their own JVM."""
    context = context or SparkContext._active_spark_context
    if context is not None:
        context._gateway = gateway  # type: ignore[misc]
        context._jvm = gateway.jvm  # type: ignore[misc]
        close_context(context)
    if SparkContext._gateway is gateway:
        _use(None)
        with SparkContext._lock:
            SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        SQLContext._instantiatedContext = None


def close_context(context: SparkContext) -> None:
    """Stops PySpark's own server after the JVM has exited."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()


def forget_modules(folder: Path) -> None:
    """Removes a folder of the JVM from the module search path, because someone else could reuse its name in the temporary folder."""
    inside = str(folder) + os.sep
    sys.path[:] = [p for p in sys.path if not p.startswith(inside)]


def _use(gateway: Gateway | None) -> None:
    with SparkContext._lock:
        SparkContext._gateway = gateway
        SparkContext._jvm = gateway.jvm if gateway is not None else None


def _mute_end(server: Any, process: JvmProcess) -> None:
    """Prevents PySpark's accumulator server from printing an error when a dying JVM breaks the connection."""
    printed = server.handle_error

    def handle_error(request: object, client: object) -> None:
        if process.end_soon() is None:
            printed(request, client)

    server.handle_error = handle_error


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restores the program's Ctrl-C handler: PySpark's handler cancels every job of the session, streaming queries too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
