"""Validation of connector options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from penstock.errors import fail


def check_options(
    connector: str, options: Mapping[str, str], known: Iterable[str], *, prefixes: Iterable[str] = ()
) -> None:
    """Raises PSK-1010, with the nearest known name, for an option that is not in `known` and has none of the `prefixes`."""
    names = sorted(known)
    for option in options:
        if option in names or any(option.startswith(p) and len(option) > len(p) for p in prefixes):
            continue
        near = get_close_matches(option.lower(), names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"The options are {', '.join(names) or 'none'}."
        raise fail("PSK-1010", f"{connector} has no option {option!r}.", hint=hint)


def required(connector: str, options: Mapping[str, str], option: str) -> str:
    value = options.get(option)
    if not value:
        raise fail("PSK-1011", f"{connector} needs the option {option!r}.")
    return value


def choice(connector: str, option: str, value: str, allowed: Iterable[str]) -> str:
    """Returns the lower-case value. Raises PSK-1011 if it is not one of `allowed`."""
    names = list(allowed)
    if value.lower() not in names:
        raise fail("PSK-1011", f"{connector}: {option} = {value!r} is not one of {', '.join(names)}.")
    return value.lower()


def flag(connector: str, option: str, value: str) -> bool:
    return choice(connector, option, value, ("true", "false")) == "true"


def seconds(connector: str, option: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise fail("PSK-1011", f"{connector}: {option} = {value!r} is not a positive number of seconds.")
    return number
