"""Detects secrets in option values and text, and masks them.

An option is secret by name (`password`, `api_key` …). A URL can contain a secret as the password before the host, or in a
query parameter with a secret name. A `${NAME}` reference reveals nothing and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from urllib.parse import quote, quote_plus

from penstock.config.substitute import REFERENCE

HIDDEN = "***"

_LAST = frozenset(
    {
        "password", "passwd", "passphrase", "passcode", "pwd", "pass", "secret", "secrets", "token", "tokens", "credential", "credentials",
        "authorization", "apikey", "accesskey", "secretkey", "privatekey", "signature", "sig", "pat", "jwt",
    }
)  # fmt: skip
"""A name that ends with one of these words is secret: `sasl.password`, but not `token.endpoint.url`."""
_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("account", "key"), ("shared", "key")}
)
_WHOLE = frozenset({"sasl.jaas.config"})
_PLAIN = ("json.column.",)
"""Options that contain column names. A column may be called token."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# A word is searched from its start alone, so that a long one takes time in proportion to its length and not to the square of it.
_SCHEME = r"(?<![A-Za-z0-9+.\-])[A-Za-z0-9+.\-]++://"
_NAME = r"(?<![\w.\-])(?P<name>[\w.\-]++)"
_URL = re.compile(rf"{_SCHEME}[^\s'\"`<>]*")
_URL_ALONE = re.compile(rf"{_SCHEME}\S*")
_USER = re.compile(r"[^:/?#]+://[^/?#@:]*:(?P<secret>[^/?#]*)@")
_PARAMETER = re.compile(r"[?&;](?P<name>[^=&;#?]+)=(?P<secret>[^&;#]*)")
_IN_TEXT = (
    re.compile(rf"{_NAME}[\"'`]?\s*=\s*[\"']?(?P<secret>[^\s\"',;&)]+)"),
    re.compile(r"[\"'](?P<name>[A-Za-z_][\w.\-]*)[\"']\s*:\s*[\"'](?P<secret>[^\"']+)"),
    re.compile(r"(?P<name>(?i:authorization))\s*:\s*(?:(?i:bearer|basic|token)\s+)?(?P<secret>[^\s\"',;]+)"),
)
"""`password=x`, `"password": "x"` and `Authorization: Bearer x`."""
_SCHEMES = re.compile(r"(?i:bearer|basic|token)\s+")
# Replace references in the searched text, so that the text inside the braces is not taken for part of a URL.
_REFERENCE, _WITH_DEFAULT = "\x00", "\x01"
# A shorter value may occur inside other words.
_SHORT = 4


def is_secret(name: str) -> bool:
    """Whether an option or parameter with this name is secret."""
    if name.lower() in _WHOLE:
        return True
    if name.lower().startswith(_PLAIN):
        return False
    words = [w.lower() for w in _WORD.findall(name)]
    return bool(words) and (words[-1] in _LAST or any(p in _PAIRS for p in pairwise(words)))


def has_clear_secret(name: str, value: str) -> bool:
    """Whether an option value contains a secret in clear text rather than as `${NAME}`."""
    return any(True for _ in _clear(name, _flat(value)))


def hidden(name: str, value: str) -> str:
    """Masks the clear-text secrets in an option value."""
    return _cut(value, _clear(name, _flat(value)), _fixed)


def blanked(name: str, value: str) -> str:
    """Like `hidden`, but keeps the length, so that positions in the text stay valid."""
    return _cut(value, _clear(name, _flat(value)), _stars)


def redact(text: str, values: Iterable[str] = (), *, same_length: bool = False) -> str:
    """Masks `values`, and everything that looks like a secret, in free text such as an error message."""
    shown = _stars if same_length else _fixed
    for value in sorted({v for v in values if v}, key=len, reverse=True):
        for spelled in {value, quote(value, safe=""), quote_plus(value), repr(value)[1:-1]}:
            whole = re.escape(spelled)
            pattern = whole if len(spelled) >= _SHORT else rf"(?<!\w){whole}(?!\w)"
            text = re.sub(pattern, lambda found: shown(len(found[0])), text)
    text = _cut(text, _in_urls(_flat(text)), shown)
    for form in _IN_TEXT:
        text = _cut(text, _assigned(form, _flat(text)), shown)
    return text


def _fixed(size: int) -> str:
    return HIDDEN


def _stars(size: int) -> str:
    return "*" * size


def _flat(text: str) -> str:
    """Replaces each reference by markers of the same length."""

    def marks(found: re.Match[str]) -> str:
        return (_WITH_DEFAULT if found["default"] else _REFERENCE) * len(found[0])

    return REFERENCE.sub(marks, text)


def _clear(name: str, flat: str) -> Iterator[tuple[int, int]]:
    """Spans of the clear-text secrets in an option value."""
    if is_secret(name):
        scheme = _SCHEMES.match(flat)
        start = scheme.end() if scheme else 0
        if _written_out(flat[start:]):
            yield start, len(flat)
        return
    yield from _in_urls(flat, _URL_ALONE)


def _in_urls(flat: str, form: re.Pattern[str] = _URL) -> Iterator[tuple[int, int]]:
    for url in form.finditer(flat):
        user = _USER.match(url[0])
        places = [user.span("secret")] if user else []
        places += [p.span("secret") for p in _PARAMETER.finditer(url[0]) if is_secret(p["name"])]
        for start, end in places:
            if _written_out(url[0][start:end]):
                yield url.start() + start, url.start() + end


def _assigned(form: re.Pattern[str], flat: str) -> Iterator[tuple[int, int]]:
    for found in form.finditer(flat):
        if is_secret(found["name"]) and _written_out(found["secret"]) and found["secret"] != HIDDEN:
            yield found.span("secret")


def _written_out(flat: str) -> bool:
    return flat.strip(_REFERENCE) != ""


def _cut(text: str, places: Iterable[tuple[int, int]], shown: Callable[[int], str]) -> str:
    out, at = [], 0
    for start, end in places:
        out += [text[at:start], shown(end - start)]
        at = end
    return "".join([*out, text[at:]])
