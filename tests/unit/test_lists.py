"""Lists that must agree, where one place names what another carries out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from penstock import connect
from penstock.config import Settings
from penstock.config.keys import section_of
from penstock.errors import CODES
from penstock.sql import statements as st

SOURCES = Path(__file__).parents[2] / "src" / "penstock"
TEXTS = {p.relative_to(SOURCES).as_posix(): p.read_text(encoding="utf-8") for p in SOURCES.rglob("*.py")}
KERNEL = [p.read_text(encoding="utf-8") for p in (SOURCES.parents[1] / "kernel" / "src").rglob("*.java")]


def _leaves(kind: type[st.Statement]) -> list[type[st.Statement]]:
    below = kind.__subclasses__()
    return [leaf for b in below for leaf in _leaves(b)] if below else [kind]


def test_every_statement_has_a_case() -> None:
    tree = ast.parse(TEXTS["runtime/statements/execute.py"])
    (run,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run"]
    cases = {n.cls.attr for n in ast.walk(run) if isinstance(n, ast.MatchClass) and isinstance(n.cls, ast.Attribute)}
    assert {s.__name__ for s in _leaves(st.Statement)} - cases == set()


def test_every_setting_is_read() -> None:
    names = []
    for name, field in Settings.model_fields.items():
        section = section_of(field)
        names += [name] if section is None else list(section.model_fields)
    others = "\n".join(text for path, text in TEXTS.items() if path != "config/settings.py")
    read = set(re.findall(r"\.(\w+)", others)) | set(re.findall(r"[\"'](?:[\w.]*\.)?(\w+)(?=[\"'])", others))
    assert [n for n in names if n not in read] == []


def test_every_error_code_is_raised() -> None:
    raised = set(
        re.findall(r"PSK-\d{4}", "\n".join([t for p, t in TEXTS.items() if p != "errors/catalogue.py"] + KERNEL))
    )
    assert raised - CODES.keys() == set()
    assert CODES.keys() - raised == set()


@pytest.mark.parametrize("module", sorted((SOURCES / "connect").glob("*.py")), ids=lambda p: p.stem)
def test_every_module_that_registers_a_connector_is_imported(module: Path) -> None:
    if re.search(r"^@register_(source|sink|lookup)\(", module.read_text(encoding="utf-8"), re.MULTILINE):
        assert hasattr(connect, module.stem)
