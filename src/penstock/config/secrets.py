"""Which values are secrets, and how they are kept out of what is stored and shown.

An option is a secret by its name (`password`, `api_key` …). A URL holds one as the password before its host, or in a query
parameter with such a name. What is written as `${NAME}` tells nothing and stays as it is.
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
"""A name whose last word is one of these is a secret's: `sasl.password`, but not `token.endpoint.url`."""
_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("account", "key"), ("shared", "key")}
)
_WHOLE = frozenset({"sasl.jaas.config"})
_PLAIN = ("json.column.",)
"""Options that name columns: a column may well be called token."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s'\"`<>]*")
_URL_ALONE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://\S*")
_USER = re.compile(r"[^:/?#]+://[^/?#@:]*:(?P<secret>[^/?#]*)@")
_PARAMETER = re.compile(r"[?&;](?P<name>[^=&;#?]+)=(?P<secret>[^&;#]*)")
_IN_TEXT = (
    re.compile(r"(?P<name>[A-Za-z_][\w.\-]*)[\"'`]?\s*=\s*[\"']?(?P<secret>[^\s\"',;&)]+)"),
    re.compile(r"[\"'](?P<name>[A-Za-z_][\w.\-]*)[\"']\s*:\s*[\"'](?P<secret>[^\"']+)"),
    re.compile(r"(?P<name>(?i:authorization))\s*:\s*(?:(?i:bearer|basic|token)\s+)?(?P<secret>[^\s\"',;]+)"),
)
"""`password=x`, `"password": "x"` and `Authorization: Bearer x`."""
_SCHEMES = re.compile(r"(?i:bearer|basic|token)\s+")
# Stand for a reference in texts that are searched: what is in its braces must not be taken for a part of a URL.
_REFERENCE, _WITH_DEFAULT = "\x00", "\x01"
# A shorter value would be found inside other words.
_SHORT = 4


def is_secret(name: str) -> bool:
    """Whether an option or parameter of that name holds a secret."""
    if name.lower() in _WHOLE:
        return True
    if name.lower().startswith(_PLAIN):
        return False
    words = [w.lower() for w in _WORD.findall(name)]
    return bool(words) and (words[-1] in _LAST or any(p in _PAIRS for p in pairwise(words)))


def has_clear_secret(name: str, value: str) -> bool:
    """Whether the value of an option holds a secret that is written out instead of as `${NAME}`."""
    return any(True for _ in _clear(name, _flat(value)))


def hidden(name: str, value: str) -> str:
    """The value of an option without the secrets that are written out in it."""
    return _cut(value, _clear(name, _flat(value)), _fixed)


def blanked(name: str, value: str) -> str:
    """The same at the length of the value, so that places in a text stay what they are."""
    return _cut(value, _clear(name, _flat(value)), _stars)


def redact(text: str, values: Iterable[str] = (), *, same_length: bool = False) -> str:
    """Free text, such as the message of an error, without `values` and without whatever looks like a secret in it."""
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
    """The text, equally long, with marks in the place of references."""

    def marks(found: re.Match[str]) -> str:
        return (_WITH_DEFAULT if found["default"] else _REFERENCE) * len(found[0])

    return REFERENCE.sub(marks, text)


def _clear(name: str, flat: str) -> Iterator[tuple[int, int]]:
    """The places of secrets that are written out in the value of an option."""
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
