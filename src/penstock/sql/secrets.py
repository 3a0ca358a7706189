"""Secrets that are written out in statements: where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot.tokens import Token, TokenType

from penstock.config.secrets import blanked, hidden, redact
from penstock.errors import PenstockError
from penstock.sql.tokens import Script, is_name, words_of

_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_BEFORE = (("FROM",), ("INTO",), ("FORMAT",))


def without_secrets(script: Script) -> str:
    """The text, as long as it was, with stars in the place of secrets in the options of connectors."""
    return _changed(script, blanked) or redact(script.text, same_length=True)


def masked(sql: str) -> str:
    """Statements without the secrets in the options of their connectors. References such as `${NAME}` stay: they tell nothing."""
    return _changed(Script(sql), hidden) or redact(sql)


def _changed(script: Script, change: Callable[[str, str], str]) -> str | None:
    """None if the text cannot be taken apart."""
    try:
        tokens = script.tokenize()
    except PenstockError:
        return None
    text, out, at = script.text, [], 0
    for key, value in _connector_options(tokens):
        quote = text.index(text[value.end], value.start)
        out += [text[at : quote + 1], change(key, text[quote + 1 : value.end])]
        at = value.end
    return "".join([*out, text[at:]])


def _connector_options(tokens: Sequence[Token]) -> Iterator[tuple[str, Token]]:
    """The names and string values in `FROM name (…)`, `INTO name (…)` and `FORMAT name (…)`."""
    for i in range(len(tokens) - 2):
        opens = words_of(tokens[i]) in _BEFORE and is_name(tokens[i + 1])
        if not opens or tokens[i + 2].token_type is not TokenType.L_PAREN:
            continue
        key: list[str] = []
        for n in range(i + 3, len(tokens)):
            token = tokens[n]
            if token.token_type is TokenType.R_PAREN:
                break
            if token.token_type is TokenType.COMMA:
                key = []
            elif token.token_type in _STRINGS and tokens[n - 1].token_type in (TokenType.EQ, *_STRINGS):
                yield "".join(key), token
            elif token.token_type is not TokenType.EQ:
                key.append(token.text)
