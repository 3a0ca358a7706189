"""What happens when a subscription ends."""

from __future__ import annotations

from collections.abc import Callable


class Closing:
    """Calls to make once when a subscription ends. It does not refer to the subscription, so it can outlive it.

    `prepare` starts the thread that makes the calls if the subscription is garbage-collected.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self.calls: list[Callable[[], None]] = []
        self._prepare = prepare

    def add(self, call: Callable[[], None]) -> None:
        self._prepare()
        self.calls.append(call)

    def run(self) -> None:
        """Makes the calls that have not been made yet, all of them even if one fails."""
        try:
            call = self.calls.pop(0)
        except IndexError:
            return
        try:
            call()
        finally:
            self.run()
