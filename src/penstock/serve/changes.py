"""Iterating over changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Changes(ABC, Generic[T]):
    """An iterator that waits for the next change and ends with its object. A `with` block ends it too."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> T | None:
        """The next change; None after `timeout` seconds, and at the end."""

    @abstractmethod
    def cancel(self) -> None:
        """Ends the iteration now and wakes its readers."""

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
