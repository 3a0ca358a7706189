"""Connectors of one direction, by name."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from penstock.errors import fail

T = TypeVar("T")


class Registry(Generic[T]):
    """Names ignore case. A later registration replaces an earlier one of the same name."""

    def __init__(self, direction: str) -> None:
        self._direction = direction
        self._known: dict[str, T] = {}

    def add(self, name: str, one: T) -> None:
        self._known[name.upper()] = one

    def get(self, name: str) -> T | None:
        return self._known.get(name.upper())

    def find(self, name: str) -> T:
        """Raises PSK-5001 if there is none of that name."""
        found = self.get(name)
        if found is None:
            near = get_close_matches(name.upper(), self.names(), n=1)
            hint = f"Did you mean {near[0]}?" if near else f"The connectors are {', '.join(self.names())}."
            raise fail("PSK-5001", f"There is no {self._direction} connector {name!r}.", hint=hint)
        return found

    def remove(self, name: str) -> None:
        self._known.pop(name.upper(), None)

    def names(self) -> list[str]:
        return sorted(self._known)

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(sorted(self._known.items()))
