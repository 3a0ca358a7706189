from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import together

from penstock.errors import PenstockError, fail
from penstock.runtime import lifecycle
from penstock.runtime.lifecycle import (
    FIRST_WAIT_S,
    INTAKE_STEPS,
    JOB_STEPS,
    LONGEST_WAIT_S,
    LOOKUP_STEPS,
    SINK_STEPS,
    STEPS,
    IntakeState,
    JobState,
    Lifecycle,
    LookupState,
    SinkState,
    State,
    wait_s,
)

TABLES: list[tuple[Any, Any, set[Any]]] = [
    (STEPS, State.CREATED, {State.CLOSED}),
    (JOB_STEPS, JobState.STARTING, {JobState.STOPPED}),
    (SINK_STEPS, SinkState.OPENING, {SinkState.STOPPED}),
    (INTAKE_STEPS, IntakeState.STARTING, {IntakeState.STOPPED}),
    (LOOKUP_STEPS, LookupState.READY, {LookupState.CLOSED}),
]
"""A table of steps, its first state, and the states that are the end."""

each = pytest.mark.parametrize(("steps", "first", "ends"), TABLES, ids=lambda v: type(v).__name__)


def reachable(steps: Mapping[Enum, frozenset[Enum]], first: Enum) -> set[Enum]:
    found, todo = {first}, [first]
    while todo:
        new = steps[todo.pop()] - found
        found |= new
        todo += new
    return found


def test_every_table_of_the_module_is_tested() -> None:
    known = [v for n, v in vars(lifecycle).items() if n.endswith("STEPS")]
    assert sorted(map(id, known)) == sorted(id(steps) for steps, _, _ in TABLES)


@each
def test_every_state_has_its_steps_and_can_be_reached(steps: Any, first: Any, ends: set[Any]) -> None:
    assert set(steps) == set(type(first))
    assert reachable(steps, first) == set(type(first))


@each
def test_an_end_is_the_end_and_can_always_be_reached(steps: Any, first: Any, ends: set[Any]) -> None:
    assert {s for s in steps if steps[s] <= {s}} == ends
    for state in steps:
        assert reachable(steps, state) & ends


@each
def test_a_step_that_is_not_in_the_table_names_both_states(steps: Any, first: Any, ends: set[Any]) -> None:
    for now in steps:
        for then in type(first):
            life: Lifecycle[Any] = Lifecycle("The thing", now, steps)
            if then in steps[now]:
                life.to(then)
                assert life.state is then
                continue
            with pytest.raises(PenstockError) as refused:
                life.to(then)
            assert refused.value.code == "PSK-0006"
            assert refused.value.detail == f"The thing is {now.value} and cannot become {then.value}."
            assert life.state is now
            assert life.attempt(then) is False and life.state is now


def test_of_two_that_take_one_step_one_takes_it() -> None:
    for _ in range(50):
        life = Lifecycle("The sink", SinkState.OPENING, SINK_STEPS)
        start = threading.Barrier(4)
        taken: list[bool] = []

        def step(
            life: Lifecycle[SinkState] = life, start: threading.Barrier = start, taken: list[bool] = taken
        ) -> None:
            start.wait(10)
            taken.append(life.attempt(SinkState.RUNNING))

        together([step] * 4)
        assert sorted(taken) == [False, False, False, True]


def test_waits_grow_and_are_bounded() -> None:
    waits = [wait_s(n) for n in range(1, 40)]
    assert waits[0] == FIRST_WAIT_S and waits[-1] == LONGEST_WAIT_S
    assert all(a < b or a == b == LONGEST_WAIT_S for a, b in pairwise(waits))
    assert wait_s(0) == wait_s(-5) == FIRST_WAIT_S
    assert wait_s(10**9) == LONGEST_WAIT_S


def test_the_end_of_a_jvm_is_no_failure_of_housekeeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be shown with every object until the turn of the task comes again, long after the next JVM has started."""
    with database(tmp_path, monkeypatch) as db:
        ticker, why = db.engine.ticker, fail("PSK-7004", "The disk is full.")

        def fails() -> None:
            raise why

        ticker._try("the removal of history", None, fails)
        assert "The disk is full" in str(ticker.error(1))
        why = fail("PSK-7005", "The JVM has exited.")
        ticker._try("the removal of history", None, fails)
        assert ticker.error(1) is None
