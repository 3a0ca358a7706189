"""Which settings the file in a database folder may set.

A folder can come from somebody else. Opening it must not run their code, contact their servers or expose ours. The file
therefore cannot set anything that could; such settings must come from the program or its environment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.config.keys import Key
from penstock.errors import fail

# Numbers, sizes, durations and flags cannot name a class, path, address or command.
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
# Flags that expose something: environment variables in SQL, other catalogues, Python workers, artifacts, files by path.
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
    """Raises PSK-0012 if the file at `path` may not set `key` to `value`."""
    if key.path[0] == "security":
        reason = "a database folder cannot widen its own permissions"
    elif key.path == ("spark", "master") and not str(value).startswith("local"):
        reason = "a database folder cannot choose the cluster"
    elif key.path == ("spark", "conf") and not _is_harmless(key.entry or "", value):
        reason = "a database folder may only set numbers, sizes, durations and flags for queries, memory and scheduling"
    else:
        return
    raise fail(
        "PSK-0012",
        f"{key} cannot be set in {path}: {reason}.",
        hint="Pass it to penstock.open(config=…) or set it in the environment.",
    )


def _is_harmless(name: str, value: Any) -> bool:
    lower = name.lower()
    known = lower.startswith(_CONF) and not lower.startswith(_OPENING)
    return known and _HARMLESS.fullmatch(str(value).strip()) is not None
