"""PySpark's context in a JVM of ours. PySpark keeps its context, session and gateway in class attributes, for one JVM in the life of a process."""

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
"""Names that PySpark asks the JVM for at every call. The JVM looks for a class of that name through all jars; here it is told once."""


def check_free() -> None:
    """Refuses to start beside a Spark that the program has started itself (PSK-0008)."""
    if SparkContext._active_spark_context is not None:
        raise fail(
            "PSK-0008",
            "This process already runs a Spark of its own.",
            hint="Stop it, or open the database in another process.",
        )


def open_context(gateway: Gateway) -> SparkSession:
    """Makes the Spark context of a JVM, and a session in it."""
    # PySpark prints each error of a query as JSON on the terminal; ours say it once, where it belongs.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # A context of the program's own that is stopped may have left its gateway.
    _use(gateway)
    with _own_interrupts():
        context = SparkContext(gateway=gateway)
    _mute_end(context._accumulatorServer, gateway.proc)
    for name in _ASKED_OFTEN:
        setattr(context._jvm, name, getattr(context._jvm, name))
    return SparkSession(context)


def forget_context(gateway: Gateway, context: SparkContext | None = None) -> None:
    """Makes room for a new context in PySpark. The objects of the old one go on raising the end of their own JVM."""
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
    """Ends PySpark's own server beside a JVM that has ended."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()


def forget_modules(folder: Path) -> None:
    """Modules are no longer looked for in a folder of the JVM's, whose name somebody else could take in the temporary folder."""
    inside = str(folder) + os.sep
    sys.path[:] = [p for p in sys.path if not p.startswith(inside)]


def _use(gateway: Gateway | None) -> None:
    with SparkContext._lock:
        SparkContext._gateway = gateway
        SparkContext._jvm = gateway.jvm if gateway is not None else None


def _mute_end(server: Any, process: JvmProcess) -> None:
    """Keeps PySpark's server of accumulators from printing the connection that a dying JVM breaks."""
    printed = server.handle_error

    def handle_error(request: object, client: object) -> None:
        if process.end_soon() is None:
            printed(request, client)

    server.handle_error = handle_error


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark makes Ctrl-C cancel every job of the session, streaming queries too; the program's own handler is put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
