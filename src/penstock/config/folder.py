"""What the settings file in a database folder may set.

A folder can come from somebody else. Opening it must not run their code, reach their servers or open ours, so everything
that could is refused in the file and has to come from the program or its environment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.config.keys import Key
from penstock.errors import fail

# A number, a size, a length of time or a flag names no class, path, address or command.
_HARMLESS = re.compile(r"(?i:true|false|-?\d+(\.\d+)?\s*[a-z]{0,2})")
_CONF = (
    "spark.sql.",
    "spark.memory.",
    "spark.shuffle.",
    "spark.locality.",
    "spark.scheduler.",
    "spark.task.",
    "spark.default.parallelism",
)
# Flags that open something: the environment in SQL, other catalogues, workers, artifacts, files by name.
_OPENING = (
    "spark.sql.variable.",
    "spark.sql.catalog.",
    "spark.sql.hive.",
    "spark.sql.thriftserver.",
    "spark.sql.pyspark.",
    "spark.sql.execution.pyspark.",
    "spark.sql.execution.python.",
    "spark.sql.artifact.",
    "spark.sql.runsqlonfiles",
    "spark.shuffle.service.",
    "spark.shuffle.push.",
)


def check_from_folder(key: Key, value: Any, path: Path) -> None:
    """PSK-0012 if the file at `path` may not set `key` to `value`."""
    if key.path[0] == "security":
        reason = "a database folder cannot widen what its own statements may reach"
    elif key.path == ("spark", "master") and not str(value).startswith("local"):
        reason = "a database folder cannot choose the cluster that its queries run on"
    elif key.path == ("spark", "conf") and not _is_harmless(key.entry or "", value):
        reason = "from there only numbers, sizes, times and flags of queries, memory and scheduling are taken"
    else:
        return
    raise fail(
        "PSK-0012",
        f"{key} cannot be set in {path}: {reason}.",
        hint="Give it to penstock.open(config=…) or set it in the environment.",
    )


def _is_harmless(name: str, value: Any) -> bool:
    lower = name.lower()
    known = lower.startswith(_CONF) and not lower.startswith(_OPENING)
    return known and _HARMLESS.fullmatch(str(value).strip()) is not None
