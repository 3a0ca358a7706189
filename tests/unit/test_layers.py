"""The layers of docs/architecture.md, the import-linter contract and the sources are one and the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def contract() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c.get("containers") == ["penstock"])
    return [layer.strip("()") for layer in layers]


def test_the_document_has_the_layers_of_the_contract() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`penstock\..*?) \|", text, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`penstock\.(\w+)`", row)] == contract()


def test_imports_go_downward_and_only_one_package_imports_pyspark() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
