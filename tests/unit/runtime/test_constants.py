"""Literals, parameters and casts without Spark. tests/spark/test_point_statements.py compares all of them with Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from penstock.runtime.statements.casts import Constant, cast
from penstock.runtime.statements.constants import bound_constant, constant
from penstock.sql.script import parse_script


def literal(text: str) -> tuple[str, Any] | None:
    statement: Any = parse_script(f"INSERT INTO t VALUES ({text})")[0]
    found = constant(statement.values[0][0], {})
    return None if found is None else (found.type, found.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", ("int", 1)),
        ("-2147483648", ("int", -(2**31))),
        ("2147483648", ("bigint", 2**31)),
        ("9223372036854775808", ("decimal", Decimal(2**63))),
        ("1.50", ("decimal", Decimal("1.50"))),
        ("-0.0", ("decimal", Decimal("0.0"))),
        ("1e3", ("double", 1000.0)),
        ("-1.5D", ("double", -1.5)),
        ("1L", ("bigint", 1)),
        ("-1.50BD", ("decimal", Decimal("-1.50"))),
        ("'it''s'", ("string", "its")),
        ("'a\\nb'", ("string", "a\nb")),
        ("X'00ff'", ("binary", b"\x00\xff")),
        ("TRUE", ("boolean", True)),
        ("NULL", ("void", None)),
        ("DATE '2024-02-29'", ("date", dt.date(2024, 2, 29))),
        ("TIMESTAMP '2024-02-29 12:00:00.5'", ("timestamp", dt.datetime(2024, 2, 29, 12, 0, 0, 500_000, dt.UTC))),
        # Spark's: errors, unusual forms, and everything that is computed.
        ("DATE '2024-02-30'", None),
        ("DATE '2024-2-3'", None),
        ("1e400", None),
        ("9" * 39, None),
        ("1 + 1", None),
        ("(1)", None),
        ("concat('a', 'b')", None),
        ("array(1)", None),
        ("?", None),
    ],
)
def test_literals(text: str, expected: tuple[str, Any] | None) -> None:
    assert literal(text) == expected


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, ("int", 5)),
        (2**31, ("bigint", 2**31)),
        (True, ("boolean", True)),
        (1.5, ("double", 1.5)),
        (Decimal("1E+2"), ("decimal", Decimal("100"))),
        ("é\0", ("string", "é\0")),
        (None, ("void", None)),
        (
            dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            ("timestamp", dt.datetime(2023, 12, 31, 23, tzinfo=dt.UTC)),
        ),
        (-(2**63), None),
        (2**63, None),
        (5e-324, None),
        (Decimal("NaN"), None),
        ("\ud800", None),
        (Colour.RED, None),
        ([1], None),
        (object(), None),
        (dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), None),
    ],
)
def test_parameters(value: object, expected: tuple[str, Any] | None) -> None:
    found = bound_constant(value)
    assert (None if found is None else (found.type, found.value)) == expected


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        (Constant("int", 127), "tinyint", 127),
        (Constant("int", 128), "tinyint", None),
        (Constant("decimal", Decimal("-1.9")), "int", -1),
        (Constant("decimal", Decimal("1.005")), "decimal(10,2)", Decimal("1.01")),
        (Constant("decimal", Decimal("99999999.995")), "decimal(10,2)", None),
        (Constant("double", 12.5), "decimal(10,2)", Decimal("12.50")),
        # Java might write other digits after the fifth, and round the other way.
        (Constant("double", 1.005), "decimal(10,2)", None),
        (Constant("double", 0.1), "float", 0.10000000149011612),
        (Constant("decimal", Decimal("1.00000005960464477540")), "float", None),
        (Constant("bigint", 2**53 + 1), "float", None),
        (Constant("string", "12"), "int", 12),
        (Constant("string", " 12 "), "int", None),
        (Constant("string", "1e3"), "double", 1000.0),
        (Constant("string", "NaN"), "double", None),
        (Constant("string", "No"), "boolean", False),
        (Constant("string", "on"), "boolean", None),
        (Constant("string", "2024-02-30"), "date", None),
        (Constant("string", "2024-02-29"), "timestamp", dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        (Constant("string", "2024-02-29 12:00:00Z"), "timestamp", None),
        (Constant("decimal", Decimal("0.0000001")), "string", "0.0000001"),
        (Constant("double", 0.5), "string", None),
        (Constant("int", 1), "date", None),
        (Constant("int", 1), "array<int>", None),
        (Constant("int", 1), "varchar(3)", None),
    ],
)
def test_casts(given: Constant, kind: str, expected: object) -> None:
    made = cast(given, kind)
    assert (None if made is None else made.value) == expected


def test_null_is_of_every_type_unless_it_has_one() -> None:
    assert cast(Constant("void", None), "date") == Constant("date", None)
    assert cast(Constant("int", None), "int") == Constant("int", None)
    assert cast(Constant("int", None), "date") is None
