"""A number that threads share."""

from __future__ import annotations

import threading


class SharedCounter:
    """A counter that one side advances and another reads. Reading takes no lock."""

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._lock = threading.Lock()

    def load(self) -> int:
        return self._value

    def store(self, value: int) -> None:
        with self._lock:
            self._value = value

    def add(self, amount: int) -> int:
        """Returns the value before the addition."""
        with self._lock:
            before = self._value
            self._value = before + amount
            return before
