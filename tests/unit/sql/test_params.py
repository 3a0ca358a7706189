"""A parameter is a value of its own, whatever is written around it."""

from __future__ import annotations

import enum
import uuid

import numpy as np
import pandas as pd
import pytest

from penstock.errors import PenstockError
from penstock.sql.params import apply_params, literal, template
from penstock.sql.script import parse_script


@pytest.mark.parametrize(
    ("sql", "value", "expected"),
    [
        ("SELECT 5-? AS a", -1, "SELECT 5- -1 AS a"),
        ("SELECT - ? AS a", -1.5, "SELECT - -1.5D AS a"),
        ("DELETE FROM t WHERE n > 5-? AND k = 1", -2, "DELETE FROM t WHERE n > 5- -2 AND k = 1"),
        ("SELECT ?-1", -2, "SELECT -2 -1"),
        ("SELECT ?::STRING", 7, "SELECT 7::STRING"),
        ("SELECT ?::STRING", -7, "SELECT (-7)::STRING"),
        ("SELECT a[?], f(?)", 3, "SELECT a[3], f(3)"),
        ("SELECT DATE ?", "2026-01-01", "SELECT DATE '2026-01-01'"),
        ("SELECT ?", 1 << 63, "SELECT 9223372036854775808BD"),
        ("SELECT 1?", 2, "SELECT 1 2"),
        ("SELECT x?", "F0", "SELECT x ('F0')"),
        ("SELECT r ?", "n", "SELECT r ('n')"),
        ("SELECT 'a'?", "b", "SELECT 'a' ('b')"),
        ("SELECT a FROM t LIMIT ?", 2, "SELECT a FROM t LIMIT 2"),
    ],
)
def test_what_is_around_a_parameter(sql: str, value: object, expected: str) -> None:
    assert apply_params(sql, [value] * sql.count("?")) == expected
    if " ?" in sql:
        assert apply_params(sql.replace("?", ":p"), {"p": value}) == expected


class _Level(enum.IntEnum):
    HIGH = 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(1.5), "1.5D"),
        (np.float32(0.5), "0.5D"),
        (np.float64("nan"), "DOUBLE('nan')"),
        (np.int64(1 << 40), "1099511627776L"),
        (np.uint8(7), "7"),
        (np.bool_(True), "TRUE"),
        (np.str_("it's"), r"'it\'s'"),
        (np.datetime64("2026-01-02T03:04:05.123456789"), "TIMESTAMP'2026-01-02 03:04:05.123456'"),
        (np.datetime64("2026-01-02"), "TIMESTAMP'2026-01-02 00:00:00'"),
        (np.timedelta64(90, "s"), "INTERVAL '0 00:01:30.000000' DAY TO SECOND"),
        (np.datetime64("NaT"), "NULL"),
        (pd.Timestamp("2026-01-02"), "TIMESTAMP'2026-01-02 00:00:00'"),
        (pd.NaT, "NULL"),
        (uuid.UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
        (bytearray(b"x"), "X'78'"),
        (memoryview(b"x"), "X'78'"),
        (_Level.HIGH, "2"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_values_of_other_libraries(value: object, expected: str) -> None:
    assert literal(value) == expected


@pytest.mark.parametrize(
    "value", [{"a": 1}, {1}, np.array([1]), np.complex64(1), object()], ids=lambda v: type(v).__name__
)
def test_values_without_a_literal(value: object) -> None:
    with pytest.raises(PenstockError, match=r"PSK-1018: A parameter of type \w+ cannot be written(.|\n)*Pass None"):
        literal(value)


def test_a_cast_that_may_fail_is_no_parameter() -> None:
    assert apply_params("SELECT a?::INT, ?", [1]) == "SELECT a?::INT, 1"
    assert template("SELECT ?::INT, 5-?") == ("SELECT  :p0 ::INT, 5- :p1 ", (0, 1))


@pytest.mark.parametrize("sql", ["SELECT 'a'?", "SELECT 1?"])
def test_two_values_in_a_row_are_refused(sql: str) -> None:
    with pytest.raises(PenstockError, match="PSK-1001"):
        parse_script(apply_params(sql, ["b"]))
