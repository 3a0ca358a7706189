"""The states of a pipeline and the steps between them."""

from __future__ import annotations

import threading
from enum import Enum

from penstock.errors import fail


class State(Enum):
    CREATED = "Created"
    STARTING = "Starting"
    RUNNING = "Running"
    SHUTTING_DOWN = "ShuttingDown"
    STOPPED = "Stopped"
    FAULTED = "Faulted"
    CLOSED = "Closed"


_NEXT: dict[State, frozenset[State]] = {
    State.CREATED: frozenset({State.STARTING, State.CLOSED}),
    State.STARTING: frozenset({State.RUNNING, State.CREATED, State.FAULTED}),
    State.RUNNING: frozenset({State.SHUTTING_DOWN, State.FAULTED}),
    State.SHUTTING_DOWN: frozenset({State.STOPPED, State.FAULTED}),
    State.STOPPED: frozenset({State.STARTING, State.CLOSED}),
    State.FAULTED: frozenset({State.STARTING, State.CLOSED}),
    State.CLOSED: frozenset(),
}


class Lifecycle:
    """Holds the state; an illegal step is PSK-0006 and names both states."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = State.CREATED

    @property
    def state(self) -> State:
        return self._state

    def to(self, state: State) -> None:
        with self._lock:
            if state not in _NEXT[self._state]:
                raise fail("PSK-0006", f"A pipeline that is {self._state.value} cannot become {state.value}.")
            self._state = state
