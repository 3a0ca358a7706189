"""Calls that can be left, without a JVM behind them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock.errors import PenstockError
from penstock.spark.calls import brief, end_calls, interruptible


def test_a_call_that_is_left_is_abandoned() -> None:
    running, abandoned, ended = threading.Event(), threading.Event(), threading.Event()
    times = 0

    def call() -> None:
        running.set()
        abandoned.wait(10)
        ended.set()

    def abandon() -> None:
        # as if the first came before there was anything to abandon
        nonlocal times
        times += 1
        if times > 1:
            abandoned.set()

    def interrupt() -> None:
        running.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(call, abandon)
    assert ended.wait(10) and times == 2


def test_an_answer_or_an_error_of_the_call_abandons_nothing() -> None:
    abandoned = threading.Event()
    assert interruptible(lambda: 42, abandoned.set) == 42
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0, abandoned.set)
    assert not abandoned.is_set()


def test_calls_that_are_under_way_can_be_ended_from_outside() -> None:
    running, release = threading.Event(), threading.Event()
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            interruptible(lambda: (running.set(), release.wait(10)))
        except OSError as error:
            ends.append(error)

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for t in waiting:
        running.clear()
        t.start()
        assert running.wait(10)
    end_calls(lambda: OSError("gone"))
    for t in waiting:
        t.join(10)
    assert len(ends) == 3 and len({id(e) for e in ends}) == 3
    # Threads whose calls come back late serve the next calls.
    release.set()
    assert interruptible(lambda: 42) == 42


def test_a_call_that_is_not_answered_in_time_is_left() -> None:
    release, abandoned = threading.Event(), threading.Event()
    with pytest.raises(TimeoutError):
        interruptible(lambda: release.wait(10), abandoned.set, within=0.01)
    assert abandoned.wait(10)
    release.set()
    assert interruptible(lambda: 42, within=10) == 42


def test_brief_calls_wait_for_a_jvm_that_does_not_answer_only_once() -> None:
    release, ended, asked = threading.Event(), threading.Event(), threading.Event()

    def silent() -> None:
        release.wait(10)
        ended.set()

    try:
        for call in (silent, asked.set):
            with pytest.raises(PenstockError, match="does not answer") as error:
                brief(call, within=0.01)
            assert error.value.code == "PSK-0010"
        assert not asked.is_set()
        # Another JVM has begun.
        end_calls(lambda: OSError("it ended"))
        assert brief(lambda: 42) == 42
    finally:
        release.set()
    assert ended.wait(10)
