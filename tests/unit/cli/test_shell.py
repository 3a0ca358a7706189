"""Completion, the shell's own commands, and when Enter runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from penstock.cli.shell.commands import COMMANDS, ShellCommand, parse
from penstock.cli.shell.completion import Names, candidates
from penstock.cli.shell.highlight import SqlHighlighter, pieces
from penstock.cli.shell.prompt import SqlCompleter, runs_on_enter
from penstock.errors import PenstockError

NAMES = Names(
    {"trades": "source", "vwap": "view", "to_disk": "sink"},
    {"trades": ("symbol", "price", "ts"), "vwap": ("symbol", "vwap")},
)


def texts(before: str) -> list[str]:
    return [c.text for c in candidates(before, NAMES)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("sub", ["SUBSCRIBE"]),
        ("FLUSH; sub", ["SUBSCRIBE"]),
        ("SHOW so", ["SOURCES"]),
        ("CREATE MAT", ["MATERIALIZED VIEW"]),
        ("SELECT * FROM ", ["trades", "vwap", "to_disk"]),
        ("SELECT * FROM tr", ["trades"]),
        ("SUBSCRIBE v", ["vwap"]),
        ("SELECT trades.", ["symbol", "price", "ts"]),
        ("SELECT t.p FROM trades t WHERE t.pr", ["price"]),
        ("SELECT x FROM trades AS t WHERE t.", ["symbol", "price", "ts"]),
        ("SELECT pri", ["price", "PRIMARY KEY"]),
        ("SELECT * FROM vwap WHERE sym", ["symbol"]),
        ("SELECT * FROM vwap WHERE pric", []),
        ("SELECT 'tr", []),
        ("-- tr", []),
        ("SELECT nobody.", []),
        ("CREATE STREAM ", []),
        ("CREATE STREAM n AS SELECT * FROM tr", ["trades"]),
        ("DROP STREAM tr", ["trades"]),
        ("CREATE STREAM n AS\n", []),
        ("SELECT 1 EMIT ON", ["ON WINDOW CLOSE", "ON UPDATE"]),
    ],
)
def test_candidates(before: str, expected: list[str]) -> None:
    assert texts(before) == expected


def test_a_completion_replaces_the_word_and_says_what_it_is() -> None:
    completer = SqlCompleter(lambda: NAMES)
    found = list(completer.get_completions(Document("SELECT * FROM tr"), CompleteEvent()))
    assert [(c.text, c.start_position, c.display_meta_text) for c in found] == [("trades", -2, "source")]
    dotted = list(completer.get_completions(Document("SELECT trades.pr"), CompleteEvent()))
    assert [(c.text, c.start_position) for c in dotted] == [("price", -2)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r"\d", ShellCommand("d", "")),
        (r"\d trades;", ShellCommand("d", "trades")),
        (".q", ShellCommand("q", "")),
        ("quit;", ShellCommand("q", "")),
        ("help", ShellCommand("?", "")),
        (r"\i a b.sql", ShellCommand("i", "a b.sql")),
        ("SELECT 1;", None),
    ],
)
def test_parse(line: str, expected: ShellCommand | None) -> None:
    assert parse(line) == expected


@pytest.mark.parametrize("line", [r"\z", r"\timing on", r"\i", ".tables"])
def test_what_is_not_carried_out_is_refused(line: str) -> None:
    with pytest.raises(PenstockError, match="PSK-0009"):
        parse(line)


def test_every_command_parses() -> None:
    for name in COMMANDS:
        assert parse(f"\\{name}" + (" file" if name == "i" else "")) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT\n1;\n", True),
        (r"\d", True),
        ("exit", True),
        ("SELECT ';", False),
    ],
)
def test_enter(text: str, expected: bool) -> None:
    assert runs_on_enter(text) is expected


def test_highlighting_knows_our_words() -> None:
    coloured = [p for p in pieces("create STREAM a AS SELECT 1.5, 'x;', `y` FROM b -- z\nEMIT CHANGES") if p[0]]
    assert coloured == [
        ("keyword", "create"),
        ("keyword", "STREAM"),
        ("keyword", "AS"),
        ("keyword", "SELECT"),
        ("number", "1.5"),
        ("string", "'x;'"),
        ("name", "`y`"),
        ("keyword", "FROM"),
        ("comment", "-- z"),
        ("keyword", "EMIT"),
        ("keyword", "CHANGES"),
    ]


@given(st.text(alphabet="aS1.'\"`-/*\\ \n;", max_size=40))
def test_highlighting_changes_no_character(text: str) -> None:
    assert "".join(piece for _, piece in pieces(text)) == text
    line = SqlHighlighter().lex_document(Document(text))
    assert ["".join(part[1] for part in line(i)) for i in range(text.count("\n") + 1)] == text.split("\n")
