from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.catalog.declared import char_length, without_lengths
from penstock.catalog.objects import Column
from penstock.catalog.types import coerce, schema_of
from penstock.errors import PenstockError


def stored(kind: str, *values: Any) -> list[Any]:
    schema = schema_of([Column("c", kind)])
    rows = coerce([(v,) for v in values], schema)
    given = pa.table({"c": pa.array(list(values), schema.field(0).type)})
    assert coerce(given, schema).equals(rows)
    assert coerce(given.slice(1), schema).equals(rows.slice(1))
    return rows["c"].to_pylist()  # type: ignore[no-any-return]


def test_char_is_padded_and_varchar_is_not() -> None:
    assert stored("char(3)", "a", "", "abc", None, "a    ", "äöü") == ["a  ", "   ", "abc", None, "a  ", "äöü"]
    assert stored("varchar(3)", "a", "", "abc", None, "a    ", "ab  ") == ["a", "", "abc", None, "a  ", "ab "]


def test_lengths_count_characters_not_bytes() -> None:
    assert stored("char(2)", "😀", "😀😀  ") == ["😀 ", "😀😀"]
    with pytest.raises(PenstockError, match=r"PSK-2009.*Row 2, column 'c': 3 characters are too long for char\(2\)"):
        stored("char(2)", "ok", "😀😀😀")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("array<char(2)>", [["a", None], [], None], [["a ", None], [], None]),
        (
            "struct<a:int,`b:char(9),`:varchar(2)>",
            [{"a": 1, "b:char(9),": "x   "}, None],
            [{"a": 1, "b:char(9),": "x "}, None],
        ),
        ("map<char(2),array<varchar(1)>>", [[("a", ["b  "])], None], [[("a ", ["b "[:1]])], None]),
        ("struct<d:decimal(4,2),s:struct<x:char(1)>>", [{"d": None, "s": {"x": ""}}], [{"d": None, "s": {"x": " "}}]),
    ],
)
def test_lengths_are_enforced_inside_other_types(kind: str, values: list[Any], expected: list[Any]) -> None:
    assert stored(kind, *values) == expected


def test_the_error_names_the_row_of_a_nested_value() -> None:
    with pytest.raises(PenstockError, match=r"PSK-2009.*Row 3"):
        stored("array<varchar(1)>", ["a", "b"], [], ["a", "bc"])
    with pytest.raises(PenstockError, match=r"PSK-5003.*duplicate key"):
        coerce([([("a", 1), ("a ", 2)],)], schema_of([Column("c", "map<char(2),int>")]))


def test_types_without_lengths() -> None:
    assert (
        without_lengths("struct<`char(3)`:char(3),b:array<varchar(2)>>") == "struct<`char(3)`:string,b:array<string>>"
    )
    assert without_lengths("decimal(3,2)") == "decimal(3,2)"
    assert (char_length("char(7)"), char_length("varchar(7)"), char_length("string"), char_length(None)) == (
        7,
        None,
        None,
        None,
    )
