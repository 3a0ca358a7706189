"""The results as a file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.summary import Line

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""By competitor and figure."""

PACKAGES = ("penstock", "pyspark", "pyarrow", "duckdb")


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions(peers: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {**found, **peers}


def about(*, load: float, peers: Mapping[str, str]) -> dict[str, Any]:
    """When and where a run was made."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_before": round(load, 2),
        "versions": versions(peers),
    }


def write(
    path: Path, lines: Sequence[Line], samples: Mapping[str, Samples], run: Mapping[str, Any], *, quick: bool
) -> None:
    content = {
        **run,
        "quick": quick,
        "rows": [
            {
                "work": line.work,
                "title": line.row.title,
                "unit": line.row.unit,
                "values": {who: asdict(value) for who, value in line.values.items()},
                "missing": dict(line.missing),
                "bars": [asdict(judged) for judged in line.judged],
            }
            for line in lines
        ],
        "samples": samples,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
