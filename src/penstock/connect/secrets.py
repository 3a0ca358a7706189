"""Secrets in the options of connectors: resolved when a connector starts, and never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.catalog.objects import Connector
from penstock.config.secrets import hidden, is_secret, redact
from penstock.config.substitute import REFERENCE
from penstock.errors import PenstockError, fail

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Resolved(Connector):
    """A connector whose options have the values of their references. It is made when it is needed, and never stored.

    `secrets` are the values that no text may show.
    """

    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{redacted(self)}>"


def resolve(connector: Connector, substitute: Callable[[str], str]) -> Connector:
    """The connector with every `${NAME}` in its options replaced; PSK-0003 if one has no value.

    To be called at each start, so that a secret that was changed is taken up.
    """
    if isinstance(connector, Resolved):
        return connector
    secrets = dict.fromkeys((*_secrets(connector.options, substitute), *_secrets(connector.format_options, substitute)))
    return Resolved(
        connector.name,
        {k: substitute(v) for k, v in connector.options.items()},
        connector.format,
        {k: substitute(v) for k, v in connector.format_options.items()},
        tuple(s for s in secrets if s),
    )


def _secrets(options: Mapping[str, str], substitute: Callable[[str], str]) -> Iterator[str]:
    for name, written in options.items():
        for reference in REFERENCE.finditer(written):
            value = substitute(reference[0])
            # A default is part of the statement, which is shown.
            if value != reference["default"]:
                yield value
        value = substitute(written)
        if is_secret(name):
            yield value
        if "://" in value:
            yield from _in_url(value)


def _in_url(url: str) -> Iterator[str]:
    """The password and the secret parameters of a URL, as they are written and as they are meant."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    yield from (password, unquote(password))
    yield from (value for name, value in parse_qsl(parts.query) if is_secret(name))


def redacted(shown: str | Connector, connector: Connector | None = None) -> str:
    """Text, or a connector, as it may be shown or logged. Of `connector`, if it is resolved, no value appears."""
    if isinstance(shown, Connector):
        return _described(shown)
    return redact(shown, connector.secrets if isinstance(connector, Resolved) else ())


def _described(connector: Connector) -> str:
    secrets = connector.secrets if isinstance(connector, Resolved) else ()

    def listed(options: Mapping[str, str]) -> str:
        return (
            f" ({', '.join(f'{k} = {redact(hidden(k, v), secrets)!r}' for k, v in options.items())})" if options else ""
        )

    text = connector.name.upper() + listed(connector.options)
    return text if connector.format is None else f"{text} FORMAT {connector.format}{listed(connector.format_options)}"


def cleaned(error: BaseException, connector: Connector) -> PenstockError:
    """The error of a connector without secrets. What is not an error of ours becomes PSK-5002."""
    if not isinstance(error, PenstockError):
        said = f"{connector.name.upper()}: {type(error).__name__}: {error}"
        return fail("PSK-5002", redacted(said, connector))
    hint = redacted(error.hint, connector) if error.hint else error.hint
    made = fail(error.code, redacted(error.detail, connector), hint=hint, position=error.position, sql=error.sql)
    for note in getattr(error, "__notes__", ()):
        made.add_note(redacted(note, connector))
    return made


class _Shield:
    """Passes calls on; what they raise is cleaned. The original error is left out: its texts, and its causes', hold the secrets."""

    def __init__(self, inner: object, connector: Connector) -> None:
        self._inner = inner
        self._connector = connector

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return guarded(found, self._connector) if callable(found) else found


def guarded(call: Callable[..., T], connector: Connector) -> Callable[..., T]:
    """`call`, whose errors show no secrets of the connector."""

    def guard(*arguments: Any, **options: Any) -> T:
        try:
            return call(*arguments, **options)
        except Exception as error:
            raise cleaned(error, connector).with_traceback(error.__traceback__) from None

    return guard


def shielded(made: T, connector: Connector) -> T:
    """A sink, source or lookup source whose errors show no secrets of its connector."""
    return cast(T, _Shield(made, connector))


__all__ = ["Resolved", "cleaned", "guarded", "redacted", "resolve", "shielded"]
