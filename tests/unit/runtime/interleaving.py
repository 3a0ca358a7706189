"""Threads that stop at named places and go on one at a time, in an order that the test chooses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

_BLOCKED_S = 0.03
"""A thread that has not come to its next place by then waits for a lock that another one holds."""
_SOON_S = 20.0


def orders(**steps: int) -> list[str]:
    """All orders of the steps of several threads, as words of their names."""
    word = "".join(name * count for name, count in steps.items())
    return sorted({"".join(p) for p in _arrangements(word)})


def _arrangements(word: str) -> Iterator[tuple[str, ...]]:
    if len(set(word)) <= 1:
        yield tuple(word)
        return
    for name in sorted(set(word)):
        for rest in _arrangements(word.replace(name, "", 1)):
            yield (name, *rest)


class _Actor:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.free = False
        self._go = threading.Semaphore(0)
        self._stopped = threading.Event()
        self._work = work
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error
        finally:
            self._stopped.set()

    def stop(self) -> None:
        """Called by the thread itself, at a place."""
        if not self.free:
            self._stopped.set()
            self._go.acquire()

    def step(self) -> None:
        self._stopped.clear()
        self._go.release()
        self._stopped.wait(_BLOCKED_S)

    def end(self) -> None:
        self.free = True
        for _ in range(50):
            self._go.release()


class Interleaving:
    """`places` are functions, by the object that has them and their name; a thread stops before it calls one."""

    def __init__(self, patch: pytest.MonkeyPatch, *places: tuple[object, str]) -> None:
        self._actors: dict[int, _Actor] = {}
        for owner, name in places:
            patch.setattr(owner, name, self._stopping(getattr(owner, name)))

    def _stopping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stops(*args: Any, **more: Any) -> Any:
            actor = self._actors.get(threading.get_ident())
            if actor is not None:
                actor.stop()
            return function(*args, **more)

        return stops

    def run(self, order: str, work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Runs each function in a thread of its own, one step of one thread at a time, and what is left at the end; returns what they return."""
        actors = {name: _Actor(function) for name, function in work.items()}
        self._actors = {a.thread.ident: a for a in actors.values() if a.thread.ident is not None}
        for name in order:
            actors[name].step()
        for actor in actors.values():
            actor.end()
        for actor in actors.values():
            actor.thread.join(_SOON_S)
            assert not actor.thread.is_alive(), f"stuck in the order {order}"
            if actor.error is not None:
                raise actor.error
        return {name: a.result for name, a in actors.items()}


def spread(found: list[str], count: int) -> list[str]:
    """Some of many orders, evenly."""
    return found if len(found) <= count else [found[i * len(found) // count] for i in range(count)]


def numbered(found: list[str]) -> Iterator[tuple[int, str]]:
    return zip(itertools.count(1), found, strict=False)
