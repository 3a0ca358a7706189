"""Syntax highlighting of SQL as it is typed, even if it is incomplete."""

from __future__ import annotations

import re
from collections.abc import Callable

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from penstock.cli.shell.words import AFTER, CLAUSES, STATEMENTS

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<string>'(?:\\.|''|[^'\\])*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\Z))
  | (?P<name>`[^`]*(?:`|\Z))
  | (?P<number>\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)
  | (?P<command>\A\s*\\\S*)
  | (?P<word>[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)

_PHRASES = (*STATEMENTS, *AFTER, *(w for words in AFTER.values() for w in words), *CLAUSES)
# window_start and window_end are completed like keywords, but they are columns
KEYWORDS = frozenset(word for phrase in _PHRASES for word in phrase.split() if word.isupper()) | {
    "ALL", "ASC", "BY", "CASCADE", "CONNECTOR", "CROSS", "CURSOR", "DEFAULT", "DESC", "EPOCH", "EXCEPT", "FALSE", "FOR", "INTERSECT", "LATERAL",
    "NATURAL", "OF", "OFFSET", "RECURSIVE", "TO", "TRUE", "UP", "USING",
}  # fmt: skip


def pieces(text: str) -> list[tuple[str, str]]:
    """Splits the text into (class, piece) pairs; the class is empty for uncoloured text. The joined pieces are the text."""
    found: list[tuple[str, str]] = []
    at = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "word":
            kind = "keyword" if match.group().upper() in KEYWORDS else ""
        if match.start() > at:
            found.append(("", text[at : match.start()]))
        found.append((kind, match.group()))
        at = match.end()
    if at < len(text):
        found.append(("", text[at:]))
    return found


class SqlHighlighter(Lexer):
    """Colours the input line by line. Strings and comments may span lines."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines: list[StyleAndTextTuples] = [[]]
        for kind, piece in pieces(document.text):
            first, *rest = piece.split("\n")
            style = f"class:sql.{kind}" if kind else ""
            lines[-1].append((style, first))
            lines.extend([(style, part)] for part in rest)
        return lambda number: lines[number] if number < len(lines) else []
