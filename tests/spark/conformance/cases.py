"""The cases of `cases.yaml`, with `ddl_like` and its replacements carried out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("cases.yaml")
_GENERATED = re.compile(r"(?P<count>\d+) rows (?P<columns>.+)")


@dataclass(frozen=True)
class Case:
    id: str
    ddl: tuple[str, ...]
    steps: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return self.id


def load() -> list[Case]:
    raw = yaml.safe_load(FILE.read_text())
    by_id = {c["id"]: c for c in raw}
    return [Case(c["id"], tuple(_ddl(c, by_id)), tuple(c["steps"])) for c in raw]


def _ddl(case: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> list[str]:
    if "ddl_like" not in case:
        return list(case["ddl"])
    ddl = list(by_id[case["ddl_like"]]["ddl"])
    if "join" in case:
        ddl[-1] = _replaced(r"\bJOIN\b", f"{case['join']} JOIN", ddl[-1])
    if "match_condition" in case:
        ddl[-1] = _replaced(r"MATCH_CONDITION\(.*\) ON", f"MATCH_CONDITION({case['match_condition']}) ON", ddl[-1])
    if "probe" in case:
        ddl[-1] = _replaced(r"LIST \([^)]*\)", case["probe"], ddl[-1])
    return ddl


def _replaced(pattern: str, text: str, sql: str) -> str:
    made, count = re.subn(pattern, lambda _: text, sql)
    assert count == 1, f"{pattern} stands {count} times in {sql}"
    return made


def generated(text: str) -> list[list[Any]]:
    """`100 rows k='A', price=100..199, ts=i`: a constant, a range, or a number plus the row's index."""
    match = _GENERATED.fullmatch(text)
    assert match is not None, text
    count = int(match["count"])
    columns = [_column(c.partition("=")[2].strip(), count) for c in match["columns"].split(",")]
    return [list(row) for row in zip(*columns, strict=True)]


def _column(text: str, count: int) -> list[Any]:
    if text.startswith("'"):
        return [text.strip("'")] * count
    if ".." in text:
        first, last = (int(t) for t in text.split(".."))
        assert last - first + 1 == count, text
        return list(range(first, last + 1))
    base = int(text.removesuffix("i").removesuffix("+") or 0)
    return [base + i for i in range(count)]
