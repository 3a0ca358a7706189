"""Recursion that is too deep for the usual stack."""

from __future__ import annotations

import sys
import threading

import pytest
from tests.effort import times

from penstock.errors import PenstockError
from penstock.plan.room import with_room


def down(n: int) -> int:
    return 0 if n == 0 else 1 + down(n - 1)


def through_c(n: int) -> int:
    """Each step goes through code in C, which takes the stack of the machine."""
    return 0 if n == 0 else 1 + max(map(through_c, [n - 1]))


def without_end(n: int) -> int:
    return without_end(n + 1) + 1


def test_as_deep_as_needed() -> None:
    before = sys.getrecursionlimit()
    assert with_room(lambda: down(10)) == 10
    assert with_room(lambda: down(20_000)) == 20_000
    assert with_room(lambda: through_c(15_000)) == 15_000
    assert with_room(lambda: with_room(lambda: down(20_000))) == 20_000
    assert sys.getrecursionlimit() == before
    assert threading.stack_size() == 0


def test_without_end() -> None:
    before = sys.getrecursionlimit()
    for call in (without_end, lambda n: with_room(lambda: without_end(n)), lambda n: through_c(10_000_000)):
        with pytest.raises(PenstockError) as caught:
            with_room(lambda call=call: call(0))  # type: ignore[misc]
        assert caught.value.code == "PSK-1020"
    assert sys.getrecursionlimit() == before


def test_other_errors_pass() -> None:
    def fails(n: int) -> int:
        return fails(n - 1) if n else int("x")

    for n in (1, 20_000):
        with pytest.raises(ValueError, match="invalid literal"):
            with_room(lambda n=n: fails(n))  # type: ignore[misc]


def test_several_at_once() -> None:
    before = sys.getrecursionlimit()
    results: list[int] = []
    for _ in range(times(10, quick=4)):
        results.clear()
        threads = [threading.Thread(target=lambda: results.append(with_room(lambda: down(15_000)))) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert results == [15_000] * 8
    assert with_room(lambda: down(10)) == 10
    assert sys.getrecursionlimit() == before


def test_the_limit_is_not_lowered_under_a_deep_thread() -> None:
    """Python would abort the process."""
    before = sys.getrecursionlimit()
    deep, go = threading.Event(), threading.Event()

    def wait(n: int) -> int:
        if n:
            return wait(n - 1) + 1
        deep.set()
        assert go.wait(60)
        return down(10)

    def other() -> None:
        assert with_room(lambda: wait(3_000)) == 3_010

    raised = threading.Thread(target=lambda: with_room(lambda: down(20_000) + int(started.set() or deep.wait(60))))
    started = threading.Event()
    raised.start()
    assert started.wait(60)
    stays = threading.Thread(target=other)
    stays.start()
    raised.join()
    assert sys.getrecursionlimit() > before
    go.set()
    stays.join()
    assert sys.getrecursionlimit() == before
