"""The kernel's classes: their packages, and the names passed to Spark."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

ROOT = "dev.penstock.kernel"

LOG_SOURCE = f"{ROOT}.log.LogSource"
LOG_SINK = f"{ROOT}.log.LogSink"
SESSION_EXTENSION = f"{ROOT}.plan.PlanCut$Extension"
CHECKPOINT_FILES = f"{ROOT}.host.CheckpointFiles"
RESULT_TOO_LARGE = f"{ROOT}.host.ResultTooLarge"
END_WITH_CONTEXT = f"{ROOT}.host.EndWithContext"

SPARK_VERSION = version("pyspark")

STATE_FORMATS = dict.fromkeys(
    (
        "Aggregate",
        "Analytic",
        "AsofJoin",
        "Distinct",
        "Extremes",
        "Join",
        "LookupJoin",
        "ProbeJoin",
        "Recursive",
        "SetOp",
        "TemporalFilter",
        "TemporalJoin",
        "TopN",
    ),
    3,
)
"""The layout of each operator's state, by its plan node. State of another layout cannot be read: its queries are refused with PSK-6003. Increment the number when you change a layout."""

NATIVE_FORMAT = 2
"""The same for the state of Spark's own operators, whose layout depends on their key columns."""

PACKAGES = {
    "aggregate": ("Aggregate", "Session"),
    "error": ("Attempts", "ErrorChannel", "PythonFunctions"),
    "hosted": ("HostRun", "HostTable", "LateRow", "Lookup", "Member"),
    "host": ("ArrowFiles", "ClassArchive", "CpuTime", "FolderHold", "HadoopSettings", "Preload"),
    "join": ("AsofJoin", "IntervalJoin", "Join", "LookupJoin", "ProbeJoin", "TemporalJoin"),
    "log": ("EpochClock", "LogIndex", "Outbox", "WatermarkExec"),
    "order": ("Analytic", "TopN"),
    "plan": ("LateCounter", "PlanOnce", "SameTrees", "SharedPart"),
    "recursion": ("Recursion",),
    "set": ("DistinctRows", "SetOp", "TemporalFilter"),
    "state": ("EventTime", "LoadedState", "SlotSizes", "StateSize"),
}
"""The classes that Python calls, by package."""

_PACKAGE_OF = {name: package for package, names in PACKAGES.items() for name in names}


class Kernel:
    """The classes of `PACKAGES` in a running JVM, by their simple names.

    Py4J asks the JVM at every attribute access, and the JVM searches every jar; this caches the result.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def __getattr__(self, name: str) -> Any:
        if name not in _PACKAGE_OF:
            raise AttributeError(f"The kernel has no class {name} that Python calls.")
        found = getattr(self._jvm, f"{ROOT}.{_PACKAGE_OF[name]}.{name}")
        setattr(self, name, found)
        return found
