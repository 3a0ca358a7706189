"""The state of an operator, read from the checkpoint and not from metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrameReader, SparkSession
from tests.spark.following import until
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


def entries_of_host(spark: SparkSession, job: Path) -> int:
    """The number of entries in the state of a shared job after its last epoch, which may have been recorded just now."""

    def epoch() -> dict[str, Any]:
        return dict(json.loads((job / "checkpoint" / "epoch").read_text().split("\n")[0]))

    until(lambda: "after" in epoch())
    last = epoch()
    jvm = spark._jvm
    stored = jvm.dev.penstock.kernel.state.StoredState(spark._jsparkSession, (job / "checkpoint").as_uri())
    count = 0
    for at, name in enumerate(last["after"]):
        depth, partition = divmod(at, last["partitions"])
        opened = stored.open(depth + 1, partition, name)
        field = opened.getClass().getDeclaredField("store")
        field.setAccessible(True)
        entries = field.get(opened).iterator("default")
        while entries.hasNext():
            entries.next()
            count += 1
        opened.abort()
    stored.forget(spark._jsparkSession)
    return count
