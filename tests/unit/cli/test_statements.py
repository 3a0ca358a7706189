"""Cutting scripts into statements."""

from __future__ import annotations

import pytest

from penstock.cli.statements import Statement, complete, relocate, split
from penstock.errors import Position, fail


def test_semicolons_in_strings_names_and_comments_do_not_cut() -> None:
    script = "SELECT ';' AS a, `b;c` -- no; cut\n/* nor; here */ FROM t;\n\n  FLUSH;"
    first, second = split(script)
    assert first.text.startswith("SELECT ';'") and first.text.endswith("FROM t")
    assert (second.text, second.line, second.column, second.terminated) == ("FLUSH", 4, 3, True)


def test_statements_that_the_stock_tokenizer_swallows() -> None:
    assert [s.text for s in split("SHOW SOURCES; EXPLAIN SELECT ';'; FETCH 3 FROM c;")] == [
        "SHOW SOURCES",
        "EXPLAIN SELECT ';'",
        "FETCH 3 FROM c",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1; SELECT", False),
        ("SELECT 'open;", False),
        ("SELECT /* open;", False),
        ("SELECT `open;", False),
        (";;", True),
    ],
)
def test_complete(text: str, expected: bool) -> None:
    assert complete(text) is expected


def test_empty_statements_are_none() -> None:
    assert split(" ; ;\n-- nothing\n;") == []


def test_summary_and_verb() -> None:
    statement = Statement("create\n  stream s AS " + "x" * 100, 1, 1, True)
    assert statement.verb == "CREATE"
    assert statement.summary.startswith("create stream s AS xxx") and len(statement.summary) == 72


def test_relocate_moves_the_caret_into_the_script() -> None:
    script = "FLUSH; SELECT x\nFROM y;"
    second = split(script)[1]
    error = fail("PSK-1004", "no x", position=Position(1, 8, 1), sql=second.text)
    assert relocate(error, second, script).position == Position(1, 15, 1)
    assert error.render().splitlines()[1:3] == ["1 | FLUSH; SELECT x", " " * 18 + "^"]
    other = fail("PSK-1002", "no y", position=Position(2, 6, 1), sql=second.text)
    assert relocate(other, second, script).position == Position(2, 6, 1)
