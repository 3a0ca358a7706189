"""The state of an operator, read from the checkpoint and not from metrics."""

from __future__ import annotations

from pyspark.sql import DataFrameReader
from tests.spark.kernel_trace import Trace


def state_rows(trace: Trace, variable: str, operator: int = 0) -> int:
    """Grouping keys that have a value in a state variable after the last epoch."""
    return _reader(trace, operator).option("stateVarName", variable).load().count()


def timers(trace: Trace, operator: int = 0) -> int:
    """Event-time timers that are set after the last epoch."""
    return _reader(trace, operator).option("readRegisteredTimers", True).load().count()


def _reader(trace: Trace, operator: int) -> DataFrameReader:
    reader = trace.spark.read.format("statestore").option("path", str(trace.folder / "checkpoint"))
    return reader.option("operatorId", operator)
