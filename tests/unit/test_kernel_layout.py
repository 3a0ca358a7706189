"""The kernel's packages, their imports and the table in docs/architecture.md agree."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.spark.kernel import PACKAGES
from penstock.spark.kernel import ROOT as KERNEL

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "kernel" / "src" / "dev" / "penstock" / "kernel"


def table() -> dict[str, set[str]]:
    """Package → packages that it may import, from the section "Kernel" of the architecture."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("\n## Kernel\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", section, re.MULTILINE)
    return {package: set(re.findall(r"`(\w+)`", imports)) for package, imports in rows}


def packages() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in sorted(SOURCES.rglob("*.java")):
        found.setdefault(file.relative_to(SOURCES).parent.as_posix(), []).append(file)
    return found


def test_every_source_is_in_a_package_of_the_table() -> None:
    assert set(packages()) == set(table())
    for package, files in packages().items():
        for file in files:
            declared = re.search(r"^package ([\w.]+);$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert declared is not None, file
            assert declared[1] == f"{KERNEL}.{package}", file


def test_packages_import_only_what_the_table_allows() -> None:
    allowed = table()
    for package, files in packages().items():
        for file in files:
            # Also names that are written out in full, in code or in comments.
            named = set(re.findall(r"dev\.penstock\.kernel\.([a-z]\w*)", file.read_text(encoding="utf-8")))
            assert named - {package} <= allowed[package], file


def test_the_table_has_no_cycle() -> None:
    allowed = table()
    below: set[str] = set()
    while free := {package for package, imports in allowed.items() if imports <= below} - below:
        below |= free
    assert below == set(allowed)


def test_the_classes_that_python_calls_are_public() -> None:
    for package, names in PACKAGES.items():
        for name in names:
            text = (SOURCES / package / f"{name}.java").read_text(encoding="utf-8")
            assert re.search(rf"^public (final )?class {name}\b", text, re.MULTILINE), name
