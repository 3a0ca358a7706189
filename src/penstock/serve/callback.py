"""Delivers changes to a function."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.serve.change import Change

if TYPE_CHECKING:
    from penstock.serve.subscription import Subscription

_logger = logging.getLogger(__name__)


class Callback:
    """Passes the changes of one subscription to a function, in its own thread."""

    def __init__(
        self,
        subscription: Subscription,
        on_change: Callable[[Change], object],
        on_error: Callable[[BaseException], object] | None,
    ) -> None:
        self._subscription = subscription
        self._on_change = on_change
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=f"penstock-subscriber-{subscription.name}", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        subscription = self._subscription
        try:
            while (got := subscription.change_or_error()) is not None:
                if isinstance(got, Change):
                    self._on_change(got)
                else:
                    self._failed(got)
        except BaseException as why:
            _logger.exception("the subscription to %s ended", subscription.name)
            subscription.note(why)
            subscription.cancel()

    def _failed(self, error: BaseException) -> None:
        self._subscription.note(error)
        if self._on_error is not None:
            self._on_error(error)
        else:
            _logger.error("%s: %s", self._subscription.name, error)
