"""The states of everything that lives, and the steps between them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from penstock.errors import fail

S = TypeVar("S", bound=Enum)


class Lifecycle(Generic[S]):
    """Holds a state; a step that `steps` does not have is PSK-0006 and names both states."""

    def __init__(self, what: str, first: S, steps: Mapping[S, frozenset[S]]) -> None:
        self._what = what
        self._steps = steps
        self._lock = threading.Lock()
        self._state = first

    @property
    def state(self) -> S:
        return self._state

    def to(self, state: S) -> None:
        with self._lock:
            if state not in self._steps[self._state]:
                raise fail("PSK-0006", f"{self._what} is {self._state.value} and cannot become {state.value}.")
            self._state = state

    def attempt(self, state: S) -> bool:
        """Takes the step if it is one; False if the state has moved on meanwhile."""
        with self._lock:
            if state not in self._steps[self._state]:
                return False
            self._state = state
            return True


class State(Enum):
    """A database. FAULTED: its JVM has ended; nothing but `start` and `close` works."""

    CREATED = "Created"
    STARTING = "Starting"
    RUNNING = "Running"
    SHUTTING_DOWN = "ShuttingDown"
    STOPPED = "Stopped"
    FAULTED = "Faulted"
    CLOSED = "Closed"


STEPS: dict[State, frozenset[State]] = {
    State.CREATED: frozenset({State.STARTING, State.FAULTED, State.CLOSED}),
    State.STARTING: frozenset({State.RUNNING, State.STOPPED, State.FAULTED, State.CLOSED}),
    State.RUNNING: frozenset({State.SHUTTING_DOWN, State.FAULTED, State.CLOSED}),
    State.SHUTTING_DOWN: frozenset({State.STOPPED, State.FAULTED, State.CLOSED}),
    State.STOPPED: frozenset({State.STARTING, State.FAULTED, State.CLOSED}),
    State.FAULTED: frozenset({State.STARTING, State.CLOSED}),
    State.CLOSED: frozenset(),
}


class JobState(Enum):
    """A streaming query. RETRYING: it failed on something that can pass, and is started again after a wait."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"
    STOPPED = "stopped"


JOB_STEPS: dict[JobState, frozenset[JobState]] = {
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.RETRYING, JobState.FAILED, JobState.STOPPED}),
    JobState.RUNNING: frozenset({JobState.RETRYING, JobState.FAILED, JobState.STOPPED}),
    JobState.RETRYING: frozenset({JobState.STARTING, JobState.FAILED, JobState.STOPPED}),
    JobState.FAILED: frozenset({JobState.STOPPED}),
    JobState.STOPPED: frozenset(),
}


class SinkState(Enum):
    """A sink. HELD: its stream has rows that could not be computed, so nothing is delivered until it heals."""

    OPENING = "opening"
    RUNNING = "running"
    HELD = "held"
    RETRYING = "retrying"
    STOPPED = "stopped"


SINK_STEPS: dict[SinkState, frozenset[SinkState]] = {
    SinkState.OPENING: frozenset({SinkState.RUNNING, SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.RUNNING: frozenset({SinkState.HELD, SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.HELD: frozenset({SinkState.RUNNING, SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.RETRYING: frozenset({SinkState.OPENING, SinkState.STOPPED}),
    SinkState.STOPPED: frozenset(),
}


class IntakeState(Enum):
    """A connector that brings rows in."""

    STARTING = "starting"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    FAILED = "failed"
    STOPPED = "stopped"


_LIVE = frozenset({IntakeState.CONNECTED, IntakeState.DISCONNECTED, IntakeState.FAILED, IntakeState.STOPPED})

INTAKE_STEPS: dict[IntakeState, frozenset[IntakeState]] = {
    IntakeState.STARTING: _LIVE,
    IntakeState.CONNECTED: _LIVE,
    IntakeState.DISCONNECTED: _LIVE,
    IntakeState.FAILED: frozenset({IntakeState.STOPPED}),
    IntakeState.STOPPED: frozenset(),
}


class LookupState(Enum):
    """A lookup table with a source. RETRYING: the source failed and is asked again."""

    READY = "ready"
    RETRYING = "retrying"
    CLOSED = "closed"


LOOKUP_STEPS: dict[LookupState, frozenset[LookupState]] = {
    LookupState.READY: frozenset({LookupState.READY, LookupState.RETRYING, LookupState.CLOSED}),
    LookupState.RETRYING: frozenset({LookupState.READY, LookupState.RETRYING, LookupState.CLOSED}),
    LookupState.CLOSED: frozenset({LookupState.CLOSED}),
}


FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 30.0


def wait_s(failures: int) -> float:
    """How long to wait after so many failures in a row, before the next attempt."""
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(max(failures, 1) - 1, 10)))
