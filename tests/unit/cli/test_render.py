"""Results as tables, JSON and CSV."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from penstock.cli.cells import to_cell, to_csv, to_json
from penstock.cli.options import Format
from penstock.cli.render import duration, print_expanded, print_result

TABLE = pa.table(
    {
        "name": pa.array(["a[red]", None, 'c,"d"'], pa.string()),
        "n": pa.array([1, 20, None], pa.int64()),
        "at": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 600_000, dt.UTC)] * 3, pa.timestamp("us", "UTC")),
    }
)


def printed(output: Format, **options: Any) -> str:
    file = io.StringIO()
    print_result(TABLE, output, Console(file=file, width=80), **options)
    return file.getvalue()


def test_table_aligns_numbers_right_and_does_not_read_markup() -> None:
    lines = [line.rstrip() for line in printed(Format.TABLE, elapsed=0.0123).splitlines()]
    assert lines[0].split() == ["name", "n", "at"]
    assert lines[2] == "a[red]      1   2026-01-02 03:04:05.6"
    assert lines[3] == "NULL       20   2026-01-02 03:04:05.6"
    assert lines[-1] == "3 rows · 12 ms"


def test_limit_cuts_rows() -> None:
    assert printed(Format.JSONL, limit=2).count("\n") == 2


def test_json_is_one_array_and_nothing_else() -> None:
    rows = json.loads(printed(Format.JSON, elapsed=1.0))
    assert rows[0] == {"name": "a[red]", "n": 1, "at": "2026-01-02T03:04:05.600000+00:00"}
    assert rows[1]["name"] is None and rows[2]["n"] is None


def test_jsonl_is_one_object_a_line() -> None:
    assert [json.loads(line)["n"] for line in printed(Format.JSONL).splitlines()] == [1, 20, None]


def test_csv() -> None:
    at = "2026-01-02T03:04:05.600000+00:00"
    assert printed(Format.CSV) == f'name,n,at\na[red],1,{at}\n,20,{at}\n"c,""d""",,{at}\n'


def test_empty_result() -> None:
    file = io.StringIO()
    print_result(TABLE.slice(0, 0), Format.JSON, Console(file=file))
    assert json.loads(file.getvalue()) == []


def test_two_columns_of_one_name_are_both_shown() -> None:
    file = io.StringIO()
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    print_result(table, Format.CSV, Console(file=file))
    assert file.getvalue() == "x,x\n1,2\n"


def test_expanded() -> None:
    file = io.StringIO()
    print_expanded(TABLE.slice(1, 1), Console(file=file, width=60))
    assert "name │ NULL" in file.getvalue() and "n    │ 20" in file.getvalue()


@pytest.mark.parametrize(
    ("value", "cell", "field", "text"),
    [
        (None, "NULL", "", "null"),
        (True, "true", "true", "true"),
        (0.1, "0.1", "0.1", "0.1"),
        (101.30000000000001, "101.3", "101.30000000000001", "101.30000000000001"),
        (1e300, "1e+300", "1e+300", "1e+300"),
        (float("nan"), "NaN", "NaN", '"NaN"'),
        (float("-inf"), "-Infinity", "-Infinity", '"-Infinity"'),
        (Decimal("1.20"), "1.20", "1.20", '"1.20"'),
        (b"\x01\xff", "0x01ff", "Af8=", '"Af8="'),
        (dt.date(2026, 1, 2), "2026-01-02", "2026-01-02", '"2026-01-02"'),
        (dt.timedelta(seconds=-1.5), "-PT1.5S", "-PT1.5S", '"-PT1.5S"'),
        ([1, None], "[1, null]", "[1, null]", "[1, null]"),
        ({"a": Decimal(1)}, '{"a": "1"}', '{"a": "1"}', '{"a": "1"}'),
        ("ü", "ü", "ü", '"ü"'),
    ],
)
def test_values(value: object, cell: str, field: str, text: str) -> None:
    assert (to_cell(value), to_csv(value), to_json(value)) == (cell, field, text)


@pytest.mark.parametrize(("seconds", "text"), [(0.0004, "0 ms"), (0.25, "250 ms"), (1.5, "1.50 s"), (125, "2 min 5 s")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
