"""The state of an operator, read from the checkpoint and not from metrics."""

from __future__ import annotations

from pyspark.sql import DataFrameReader
from tests.spark.kernel_trace import Trace


def state_entries(trace: Trace, operator: int = 0) -> int:
    """Entries in the state of an operator after the last epoch: one for each value of a group, and one for each key in its maps."""
    return _reader(trace, operator).option("stateVarName", "state").load().count()


def timers(trace: Trace, operator: int = 0) -> int:
    """Event-time timers that are set after the last epoch."""
    return _reader(trace, operator).option("readRegisteredTimers", True).load().count()


def _reader(trace: Trace, operator: int) -> DataFrameReader:
    reader = trace.spark.read.format("statestore").option("path", str(trace.folder / "checkpoint"))
    return reader.option("operatorId", operator)
