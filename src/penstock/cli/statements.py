"""Splits SQL text at semicolons, and tells whether typed text is complete."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError, Position


@dataclass(frozen=True)
class Statement:
    """One statement without its semicolon, and its start in the script (1-based)."""

    text: str
    line: int
    column: int
    terminated: bool

    @property
    def verb(self) -> str:
        """The first word, in upper case."""
        words = self.text.split(None, 1)
        return words[0].upper().rstrip("(") if words else ""

    @property
    def summary(self) -> str:
        """The statement on one line, for progress."""
        line = " ".join(self.text.split())
        return line if len(line) <= 72 else line[:71] + "…"


def split(text: str) -> list[Statement]:
    """The statements of a script in order. Semicolons in strings, quoted names and comments do not count.

    Text that cannot be tokenized (an open string or comment) is one unterminated statement; the engine reports the error.
    """
    from penstock.sql.tokens import Script

    try:
        tokens = Script(text).tokenize()
    except PenstockError:
        return [_statement(text, 0, len(text), terminated=False)]
    found: list[Statement] = []
    start: int | None = None
    end = 0
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            if start is not None:
                found.append(_statement(text, start, end, terminated=True))
            start = None
            continue
        if start is None:
            start = token.start
        end = token.end + 1
    if start is not None:
        found.append(_statement(text, start, end, terminated=False))
    return found


def complete(text: str) -> bool:
    """True if Enter should run the text: every statement in it ends with a semicolon."""
    return all(s.terminated for s in split(text))


def relocate(error: PenstockError, statement: Statement, script: str) -> PenstockError:
    """Convert an error's position in the statement to a position in the script."""
    at = error.position
    if at is not None:
        column = at.column + (statement.column - 1 if at.line == 1 else 0)
        error.position = Position(at.line + statement.line - 1, column, at.length)
        error.sql = script
    return error


def _statement(text: str, start: int, end: int, *, terminated: bool) -> Statement:
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return Statement(text[start:end], line, column, terminated)
