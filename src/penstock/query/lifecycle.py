"""The states of a streaming query and the steps between them."""

from __future__ import annotations

from enum import Enum


class QueryState(Enum):
    """READY: compiled, not started. PAUSED: its state is kept, it processes nothing. STOPPED: terminal."""

    READY = "Ready"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPED = "Stopped"


STEPS: dict[QueryState, frozenset[QueryState]] = {
    QueryState.READY: frozenset({QueryState.RUNNING, QueryState.STOPPED}),
    QueryState.RUNNING: frozenset({QueryState.PAUSED, QueryState.STOPPED}),
    QueryState.PAUSED: frozenset({QueryState.RUNNING, QueryState.STOPPED}),
    QueryState.STOPPED: frozenset(),
}
