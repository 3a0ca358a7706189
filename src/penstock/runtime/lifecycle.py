"""The lifecycles of databases, jobs, sinks, connectors and lookup tables, with their transitions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from penstock.errors import fail

S = TypeVar("S", bound=Enum)


class Lifecycle(Generic[S]):
    """Holds a state. A transition that is not in `steps` raises PSK-0006, which names both states."""

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
        """Makes the transition if it is legal; False if the state has changed in the meantime."""
        with self._lock:
            if state not in self._steps[self._state]:
                return False
            self._state = state
            return True


class State(Enum):
    """A database. FAULTED: its JVM exited; only `start`, `close` and `status` work."""

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
    """A streaming query. RETRYING: it failed on a transient error, and will be restarted after a wait."""

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
    """A sink. HELD: its stream has rows that could not be computed, so nothing is delivered until they are gone. STUCK: a call of it has taken
    longer than its write timeout and was cancelled, but has not returned yet."""

    OPENING = "opening"
    RUNNING = "running"
    HELD = "held"
    STUCK = "stuck"
    RETRYING = "retrying"
    STOPPED = "stopped"


SINK_STEPS: dict[SinkState, frozenset[SinkState]] = {
    SinkState.OPENING: frozenset({SinkState.RUNNING, SinkState.STUCK, SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.RUNNING: frozenset({SinkState.HELD, SinkState.STUCK, SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.HELD: frozenset({SinkState.RUNNING, SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.STUCK: frozenset({SinkState.RETRYING, SinkState.STOPPED}),
    SinkState.RETRYING: frozenset({SinkState.OPENING, SinkState.STOPPED}),
    SinkState.STOPPED: frozenset(),
}


class IntakeState(Enum):
    """A connector that feeds a source."""

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
    """A lookup table with a source. RETRYING: the source failed and will be retried."""

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
    """The wait before the next attempt, after a number of consecutive failures."""
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(max(failures, 1) - 1, 10)))
