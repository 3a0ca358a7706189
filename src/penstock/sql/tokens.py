"""Tokens of a script, with their positions, and a cursor over them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from penstock.config.secrets import redact
from penstock.errors import PenstockError, Position, fail
from penstock.sql.names import KEYWORDS, unfit

_COMMANDS = frozenset({TokenType.COMMAND, TokenType.EXECUTE, TokenType.FETCH, TokenType.SHOW, TokenType.RENAME})
_QUOTED = frozenset({TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING, TokenType.HEX_STRING})
_PUNCTUATION = frozenset("()[]{},.;:=<>+-*/%?!|&^~#$@")


Substitute = Callable[[str], str]


@dataclass(frozen=True)
class Reading:
    """How to parse a script.

    `substitute` replaces the variables in an option value. `connectors` says what to do with connector options: `check` them but leave them as
    written, `keep` them unchecked (a stored statement, whose variables may no longer exist), or `resolve` them.
    `programs` allows SQL that runs programs or reads files (the setting `security.allow_programs`).
    """

    substitute: Substitute | None = None
    connectors: Literal["resolve", "check", "keep"] = "resolve"
    programs: bool = False


class Script:
    """The whole text, with the line and column of every offset."""

    def __init__(self, text: str, reading: Reading | None = None) -> None:
        if not isinstance(text, str):
            raise fail("PSK-0009", f"A statement is a string, not {type(text).__name__}.")
        self.text = text
        self.reading = reading or Reading()

    @cached_property
    def shown(self) -> str:
        """The text for error messages: clear-text secrets are masked, and all positions stay the same."""
        from penstock.sql.secrets import without_secrets

        # Used by errors raised while the text is tokenized below.
        self.__dict__["shown"] = redact(self.text, same_length=True)
        # An unpaired surrogate cannot be printed.
        return without_secrets(self).encode(errors="replace").decode()

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]

    def position(self, start: int, length: int = 1) -> Position:
        start = max(0, min(start, len(self.text)))
        line = bisect_right(self._starts, start)
        return Position(line, start - self._starts[line - 1] + 1, max(1, length))

    def at(self, token: Token) -> Position:
        return self.position(token.start, token.end - token.start + 1)

    def place(self, node: exp.Expr) -> Position | None:
        """The position of a parsed node: the span of its parts that have a position; None if there are none."""
        if not isinstance(node, exp.Column) and "start" in node.meta:
            return self.position(node.meta["start"], node.meta["end"] - node.meta["start"] + 1)
        spans = [(n.meta["start"], n.meta["end"]) for n in node.walk() if "start" in n.meta]
        if not spans:
            return None
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        if "\n" in self.text[start:end]:
            end = start
        return self.position(start, end - start + 1)

    def refusal(self, code: str, detail: str, node: exp.Expr, *, hint: str | None = None) -> PenstockError:
        return fail(code, detail, position=self.place(node), sql=self.shown, hint=hint)

    def syntax_error(self, detail: str, where: Position | None, hint: str | None = None) -> PenstockError:
        return fail("PSK-1001", detail, position=where, sql=self.shown, hint=hint)

    def tokenize(self) -> list[Token]:
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            raise self.syntax_error("the text contains an unpaired surrogate", self.position(error.start)) from None
        return _tokenize(self)


def _tokenize(script: Script) -> list[Token]:
    """The stock tokenizer reads everything after some leading keywords (SHOW, EXPLAIN, FETCH …) as one string. A parenthesis is
    therefore prepended, and the text after such a keyword inside a script is tokenized separately.
    """
    raw = _raw(script, 0, len(script.text))
    out: list[Token] = []
    skip = False
    for i, token in enumerate(raw):
        if skip:
            skip = False
            continue
        out.append(token)
        first = i > 0 and raw[i - 1].token_type in (TokenType.SEMICOLON, TokenType.BEGIN)
        if first and token.token_type in _COMMANDS and i + 1 < len(raw) and raw[i + 1].token_type is TokenType.STRING:
            end = raw[i + 2].start if i + 2 < len(raw) else len(script.text)
            out += _raw(script, token.end + 1, end)
            skip = True
    return out


def _raw(script: Script, start: int, end: int) -> list[Token]:
    text = script.text[start:end]
    try:
        return _joined([moved(t, start - 1) for t in Spark().tokenize("(" + text)[1:]])
    except TokenError:
        where = script.position(_unterminated(text) + start)
        raise script.syntax_error("unterminated string, name or comment", where) from None


def _joined(tokens: list[Token]) -> list[Token]:
    """`X 'F0'` is one literal, with or without a blank."""
    out: list[Token] = []
    for t in tokens:
        before = out[-1] if out else None
        if (
            t.token_type is TokenType.STRING
            and before is not None
            and before.text in ("X", "x")
            and before.token_type not in _QUOTED
        ):
            out[-1] = Token(TokenType.HEX_STRING, t.text, before.line, before.col, before.start, t.end, [])
        else:
            out.append(t)
    return out


def moved(t: Token, by: int) -> Token:
    return Token(t.token_type, t.text, t.line, t.col, t.start + by, t.end + by, [])


def _unterminated(text: str) -> int:
    """The start of the unterminated string, name or comment."""
    i = 0
    while i < len(text):
        two = text[i : i + 2]
        c = text[i]
        if two == "--":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif two == "/*":
            end = text.find("*/", i + 2)
            if end < 0:
                return i
            i = end + 2
        elif c in "'\"`":
            j = i + 1
            while j < len(text) and text[j] != c:
                j += 2 if text[j] == "\\" and c != "`" else 1
            if j >= len(text):
                return i
            i = j + 1
        else:
            i += 1
    return max(0, len(text) - 1)


def words_of(token: Token) -> tuple[str, ...]:
    """The keywords in a token; none for a quoted token."""
    return () if token.token_type in _QUOTED else tuple(token.text.upper().split())


def is_name(token: Token | None) -> bool:
    """True if the token can be an identifier: a quoted name, or any word."""
    if token is None or token.token_type in (
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.RAW_STRING,
        TokenType.HEX_STRING,
    ):
        return False
    return token.token_type is TokenType.IDENTIFIER or (bool(token.text) and token.text[0] not in _PUNCTUATION)


@lru_cache(maxsize=1024)
def _words(phrase: str) -> tuple[str, ...]:
    return tuple(phrase.split())


class Cursor:
    """A reading position in a statement's tokens."""

    def __init__(self, script: Script, tokens: Sequence[Token], end: int | None = None) -> None:
        self.script = script
        self.tokens = tokens
        self.index = 0
        self.end = len(tokens) if end is None else end

    def peek(self, ahead: int = 0) -> Token | None:
        i = self.index + ahead
        return self.tokens[i] if i < self.end else None

    @property
    def done(self) -> bool:
        return self.index >= self.end

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.error("unexpected end of statement")
        self.index += 1
        return token

    def _match(self, words: tuple[str, ...]) -> int:
        """The number of tokens that spell `words`; 0 if they do not."""
        i, done = self.index, 0
        while done < len(words):
            # Fast path: this runs many times per token, and most tokens differ in their first letter.
            if i >= self.end or self.tokens[i].text[:1].upper() != words[done][0]:
                return 0
            spelled = words_of(self.tokens[i])
            if not spelled or words[done : done + len(spelled)] != spelled:
                return 0
            done += len(spelled)
            i += 1
        return i - self.index

    def at(self, phrase: str) -> bool:
        return self._match(_words(phrase)) > 0

    def accept(self, phrase: str) -> bool:
        n = self._match(_words(phrase))
        self.index += n
        return n > 0

    def expect(self, phrase: str) -> Token:
        token = self.peek()
        if not self.accept(phrase):
            raise self.error(f"expected {phrase}")
        assert token is not None
        return token

    def name(self, what: str = "a name") -> str:
        token = self.peek()
        if not is_name(token):
            raise self.error(f"expected {what}")
        assert token is not None
        self.index += 1
        return token.text

    def new_name(self, what: str = "a name") -> str:
        """Parses the name of a new object or column. A keyword must be quoted."""
        where, token = self.here(), self.peek()
        name = self.name(what)
        reason = unfit(name)
        if reason is not None:
            raise self.fail("PSK-1015", reason, hint="Choose another name.", position=where)
        if token is not None and token.token_type is not TokenType.IDENTIFIER and name.lower() in KEYWORDS:
            hint = f"Write `{name}`, here and in queries, or choose another name."
            raise self.fail("PSK-1015", f"{name} is a keyword", hint=hint, position=where)
        return name

    def integer(self) -> int:
        token = self.peek()
        if token is None or token.token_type is not TokenType.NUMBER or not token.text.isdigit():
            raise self.error("expected a whole number")
        self.index += 1
        return int(token.text)

    def finish(self) -> None:
        if not self.done:
            raise self.error("unexpected text after the statement")

    def here(self) -> Position:
        token = self.peek()
        if token is not None:
            return self.script.at(token)
        if self.index > 0 and self.tokens:
            return self.script.position(self.tokens[min(self.index, self.end) - 1].end + 1)
        return self.script.position(0)

    def error(self, detail: str, hint: str | None = None) -> PenstockError:
        token = self.peek()
        found = f", found {_shown(token)}" if token is not None and detail.startswith("expected") else ""
        if token is None and detail.startswith("expected"):
            found = ", found the end of the statement"
        return self.script.syntax_error(detail + found, self.here(), hint)

    def fail(
        self, code: str, detail: str, *, hint: str | None = None, position: Position | None = None
    ) -> PenstockError:
        return fail(code, detail, hint=hint, position=position or self.here(), sql=self.script.shown)

    def closing(self, start: int) -> int:
        """The index of the parenthesis that closes the one at `start`."""
        depth = 0
        for i in range(start, self.end):
            kind = self.tokens[i].token_type
            depth += kind is TokenType.L_PAREN
            depth -= kind is TokenType.R_PAREN
            if depth == 0:
                return i
        self.index = self.end
        raise self.error("missing )")


def _shown(token: Token) -> str:
    text = token.text if len(token.text) <= 30 else token.text[:27] + "..."
    return f"'{text}'"
