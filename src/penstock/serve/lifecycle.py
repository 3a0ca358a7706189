"""The states of a subscription and the steps between them."""

from __future__ import annotations

from enum import Enum

from penstock.errors import fail


class SubscriptionState(Enum):
    """ATTACHING: messages are queued, the starting point is not known yet. SUSPENDED: the object has an error that may heal. ENDED, FAILED: no
    more changes follow, the rest can still be read. CLOSED: cancelled, or read to the end."""

    ATTACHING = "Attaching"
    OPEN = "Open"
    SUSPENDED = "Suspended"
    ENDED = "Ended"
    FAILED = "Failed"
    CLOSED = "Closed"


_NEXT: dict[SubscriptionState, frozenset[SubscriptionState]] = {
    SubscriptionState.ATTACHING: frozenset(
        {
            SubscriptionState.OPEN,
            SubscriptionState.SUSPENDED,
            SubscriptionState.ENDED,
            SubscriptionState.FAILED,
            SubscriptionState.CLOSED,
        }
    ),
    SubscriptionState.OPEN: frozenset(
        {SubscriptionState.SUSPENDED, SubscriptionState.ENDED, SubscriptionState.FAILED, SubscriptionState.CLOSED}
    ),
    SubscriptionState.SUSPENDED: frozenset(
        {SubscriptionState.OPEN, SubscriptionState.ENDED, SubscriptionState.FAILED, SubscriptionState.CLOSED}
    ),
    SubscriptionState.ENDED: frozenset({SubscriptionState.CLOSED}),
    SubscriptionState.FAILED: frozenset({SubscriptionState.CLOSED}),
    SubscriptionState.CLOSED: frozenset(),
}

LIVE = (SubscriptionState.ATTACHING, SubscriptionState.OPEN, SubscriptionState.SUSPENDED)
"""States in which more changes may follow. A tuple, because hashing an enum member takes longer than the rest of `offer`."""


class SubscriptionLifecycle:
    """Holds the state; an illegal step is PSK-0006 and names both states. Callers hold the subscription's lock."""

    def __init__(self) -> None:
        self._state = SubscriptionState.ATTACHING

    @property
    def state(self) -> SubscriptionState:
        return self._state

    def to(self, state: SubscriptionState) -> None:
        if state not in _NEXT[self._state]:
            raise fail("PSK-0006", f"A subscription that is {self._state.value} cannot become {state.value}.")
        self._state = state
