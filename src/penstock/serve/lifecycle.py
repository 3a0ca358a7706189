"""The states of a subscription and the steps between them."""

from __future__ import annotations

from enum import Enum

from penstock.errors import fail


class State(Enum):
    """ATTACHING: messages are queued, the starting point is not known yet. SUSPENDED: the object has an error that may heal. ENDED, FAILED: nothing
    more will come, the rest can still be read. CLOSED: cancelled, or read to the end."""

    ATTACHING = "Attaching"
    OPEN = "Open"
    SUSPENDED = "Suspended"
    ENDED = "Ended"
    FAILED = "Failed"
    CLOSED = "Closed"


_NEXT: dict[State, frozenset[State]] = {
    State.ATTACHING: frozenset({State.OPEN, State.SUSPENDED, State.ENDED, State.FAILED, State.CLOSED}),
    State.OPEN: frozenset({State.SUSPENDED, State.ENDED, State.FAILED, State.CLOSED}),
    State.SUSPENDED: frozenset({State.OPEN, State.ENDED, State.FAILED, State.CLOSED}),
    State.ENDED: frozenset({State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}

LIVE = (State.ATTACHING, State.OPEN, State.SUSPENDED)
"""States in which more may come. A tuple, because hashing an enum member takes longer than the rest of `offer`."""


class Lifecycle:
    """Holds the state; an illegal step is PSK-0006 and names both states. Callers hold the subscription's lock."""

    def __init__(self) -> None:
        self._state = State.ATTACHING

    @property
    def state(self) -> State:
        return self._state

    def to(self, state: State) -> None:
        if state not in _NEXT[self._state]:
            raise fail("PSK-0006", f"A subscription that is {self._state.value} cannot become {state.value}.")
        self._state = state
