"""Coordinates the threads that read one subscription: one reads at a time, and they sleep while there is nothing to read."""

from __future__ import annotations

import threading
import time

# A signal just before a wait does not end it, so every wait is bounded.
_LOOK_S = 1.0


class Turns:
    """`lock` is the subscription's. Readers wait for bare locks: an interrupt inside threading.Condition could leave its lock in the wrong state."""

    __slots__ = ("_lock", "_sleepers", "reader")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._sleepers: list[threading.Lock] = []
        self.reader: int | None = None
        """The thread whose turn it is."""

    def take(self, deadline: float | None) -> bool:
        """Waits until it is the calling thread's turn; False at the deadline."""
        own = threading.get_ident()
        while True:
            with self._lock:
                if self.reader in (None, own):
                    self.reader = own
                    return True
                sleeper = self.sleeper()
            if not self.sleep(sleeper, deadline):
                return False

    def end(self) -> None:
        with self._lock:
            self.reader = None
            self.wake()

    def sleeper(self) -> threading.Lock:
        """A lock that the next event releases. Called with the lock."""
        sleeper = threading.Lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        return sleeper

    def sleep(self, sleeper: threading.Lock, deadline: float | None) -> bool:
        """Waits for the next event, without the lock; False if the deadline has passed."""
        left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
        if left > 0 and sleeper.acquire(timeout=left):
            return True
        with self._lock:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
        return left > 0

    def wake(self) -> None:
        """Wakes all sleeping threads. Called with the lock."""
        while self._sleepers:
            self._sleepers.pop().release()


def deadline_of(timeout: float | None) -> float | None:
    """The end of a wait on the monotonic clock; 0.0 for a poll."""
    if timeout is None or timeout <= 0:
        return None if timeout is None else 0.0
    return time.monotonic() + timeout
