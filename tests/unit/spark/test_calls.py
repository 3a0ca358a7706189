"""Calls that can be left, without a JVM behind them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock.spark.calls import end_calls, interruptible


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
