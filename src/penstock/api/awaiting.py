"""Subscriptions for `async for`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from penstock.serve.change import Change
from penstock.serve.subscription import Readiness, Subscription


class AsyncSubscription(AsyncIterator[Change]):
    """A subscription for one task at a time. A cancelled call, for example by a timeout, loses nothing: the next one continues.

    Changes in memory are read in the event loop, so any number of subscriptions need no thread; the log and contents are read in another thread.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._reading: asyncio.Future[Change | None] | None = None

    @property
    def subscription(self) -> Subscription:
        return self._subscription

    async def __anext__(self) -> Change:
        subscription, loop = self._subscription, asyncio.get_running_loop()
        bell = _bell(loop)
        while True:
            change = subscription.at_hand() if self._reading is None else await self._read()
            if change is not None:
                return change
            if subscription.closed:
                raise StopAsyncIteration
            news: asyncio.Future[None] = loop.create_future()
            subscription.wake = partial(bell.ring, news)
            match subscription.readiness():
                case Readiness.LATER:
                    await news
                case Readiness.NOW:
                    change = subscription.next(0)
                case Readiness.WORK:
                    change = await self._read()
            if change is not None:
                return change

    async def _read(self) -> Change | None:
        """Reads in another thread. The result for a cancelled call is kept for the next one."""
        if self._reading is None:
            # The timeout bounds how long a cancelled call keeps a thread.
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._subscription.next, 0.5))
        reading = self._reading
        await asyncio.wait([reading])
        self._reading = None
        return reading.result()

    def cancel(self) -> None:
        self._subscription.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class _Bell:
    """Wakes tasks of one event loop from other threads, batching those of one commit."""

    def __init__(self) -> None:
        self._rung: deque[asyncio.Future[None]] = deque()
        self._called = False

    def ring(self, news: asyncio.Future[None]) -> None:
        self._rung.append(news)
        if not self._called:
            self._called = True
            # A loop that has ended has no tasks to wake.
            with suppress(RuntimeError):
                news.get_loop().call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._called = False
        while self._rung:
            news = self._rung.popleft()
            if not news.done():
                news.set_result(None)


_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = WeakKeyDictionary()


def _bell(loop: asyncio.AbstractEventLoop) -> _Bell:
    bell = _bells.get(loop)
    if bell is None:
        bell = _bells[loop] = _Bell()
    return bell
