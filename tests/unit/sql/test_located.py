"""Spark's errors get a position in the text of the query."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError, Position, fail
from penstock.sql.located import located
from penstock.sql.script import parse_script
from penstock.sql.statements import Select

TEXT = "SELECT k,\n  coun(v) AS n\nFROM s GROUP BY k, TUMBLING(ts, INTERVAL '1' MINUTE)"


def placed(code: str, detail: str) -> PenstockError:
    (statement,) = parse_script(TEXT)
    assert isinstance(statement, Select)
    with pytest.raises(PenstockError) as caught, located(statement.query):
        raise fail(code, detail)
    return caught.value


@pytest.mark.parametrize(
    ("name", "hint", "where"),
    [
        ("coun", "Did you mean count?", Position(2, 3, 4)),
        ("TUMBLING", "Did you mean TUMBLE?", Position(3, 20, 8)),
        (
            "xyzzy",
            "Available are Spark SQL's functions and those registered with db.register_function.",
            Position(1, 1, 1),
        ),
    ],
)
def test_an_unknown_function_has_a_place_and_a_suggestion(name: str, hint: str, where: Position) -> None:
    error = placed("PSK-1006", f"Cannot resolve routine `{name}` on search path [`system`.`builtin`].")
    assert (error.detail, error.hint, error.position, error.sql) == (f"unknown function {name}", hint, where, TEXT)


def test_other_errors_of_the_query_are_at_its_start_and_errors_of_a_run_have_no_place() -> None:
    assert placed("PSK-1007", "Cannot add a string to a date.").position == Position(1, 1, 1)
    assert placed("PSK-7001", "Division by zero.").position is None
