"""The records of functions: nothing else may have a list of its own that disagrees."""

from __future__ import annotations

import re
from pathlib import Path as File

import pytest

from penstock.plan.functions import (
    AGGREGATES,
    ANALYTIC,
    ROWS_AT_MAX,
    ROWS_AT_MIN,
    Keeps,
    OfNothing,
    Path,
    Result,
    aggregate,
    find_aggregate,
    find_analytic,
)

KERNEL = File(__file__).parents[3] / "kernel" / "src" / "dev" / "penstock" / "kernel"


def test_the_kernel_has_exactly_the_functions_that_are_incremental() -> None:
    text = (KERNEL / "aggregate" / "AggregateName.java").read_text(encoding="utf-8")
    constants = set(re.findall(r"^  ([A-Z_]+)\(.*\)[,;]$", text, re.MULTILINE))
    incremental = {f.name for f in AGGREGATES.values() if f.path is Path.KERNEL}
    assert {c.lower() for c in constants} == incremental | {ROWS_AT_MIN.name, ROWS_AT_MAX.name, "recomputed"}


def test_the_kernel_has_exactly_the_functions_that_are_only_analytic() -> None:
    text = (KERNEL / "order" / "WindowFunction.java").read_text(encoding="utf-8")
    read = text[text.index("WindowFunction(JsonNode") : text.index("default ->")]
    named = {name for case in re.findall(r"case ([^>]*)->", read) for name in re.findall(r'"(\w+)"', case)}
    assert named == {f.name for f in ANALYTIC.values() if not f.aggregate}
    assert all(f.name in AGGREGATES for f in ANALYTIC.values() if f.aggregate)


def test_no_name_belongs_to_two_functions() -> None:
    names = [n for f in AGGREGATES.values() for n in (f.name, *f.aliases)]
    assert len(names) == len(set(names)) and all(n == n.lower() for n in names)


@pytest.mark.parametrize("f", AGGREGATES.values(), ids=lambda f: f.name)
def test_the_properties_of_a_function_agree(f: object) -> None:
    record = AGGREGATES[getattr(f, "name", "")]
    if record.native:
        assert record.path is Path.KERNEL and record.keeps is not Keeps.WHOLE and not record.edge and not record.ordered
    if record.path is Path.RECOMPUTED:
        assert record.keeps is Keeps.WHOLE and record.most is None
    if record.of_nothing is OfNothing.UNKNOWN:
        assert record.path in (Path.RECOMPUTED, Path.REFUSED)
    if record.of_nothing is OfNothing.EMPTY:
        assert record.result is Result.LIST
    if record.edge:
        assert record.result is Result.SAME and record.most == 1


def test_a_function_is_found_by_its_aliases_and_has_one_name_in_plans() -> None:
    assert find_aggregate("collect_list") is aggregate("array_agg")
    assert find_aggregate("rows_at_min") is None and aggregate("rows_at_min") is ROWS_AT_MIN
    first = find_analytic("first")
    assert first is not None and first.name == "first_value"
    assert find_aggregate("row_number") is None


@pytest.mark.parametrize(
    ("name", "argument", "number"),
    [
        ("count", None, True),
        ("max", True, True),
        ("max", None, None),
        ("array_agg", True, False),
        ("mode", False, False),
    ],
)
def test_whether_a_result_is_a_number(name: str, argument: bool | None, number: bool | None) -> None:
    assert aggregate(name).result.is_number(argument) is number
