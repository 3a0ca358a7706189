"""How much state a query may keep: `max_state_bytes`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from penstock.errors import fail
from penstock.runtime.durations import size_bytes
from penstock.spark.operators import StateFigures

_logger = logging.getLogger(__name__)

WARN_AT = 0.8
"""The share of the limit from which on a query warns."""


def state_limit(options: Mapping[str, str]) -> int:
    """The limit in bytes that the options of a query give; 0 if they give none."""
    text = options.get("max_state_bytes")
    if text is None:
        return 0
    size = int(text) if text.isdecimal() else size_bytes(text)
    if not size:
        raise fail("PSK-1011", f"max_state_bytes = '{text}' is not a size.", hint="Write it like '64mb'.")
    return size


class StateGuard:
    """Watches one query: says once in the log that its state comes near the limit, and fails it there."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._warned = False

    def check(self, state: Sequence[StateFigures]) -> None:
        """Called for every epoch before it is recorded: what was recorded stays right when the query fails."""
        used = sum(s.bytes for s in state)
        if used >= self._limit:
            raise fail(
                "PSK-4002",
                f"{self._name} keeps {used} bytes of state; max_state_bytes allows {self._limit}.",
                hint=f"Drop {self._name} and create it with a larger max_state_bytes, or let it keep less: bound joins in time, close windows, filter by now().",
            )
        warning = self.warning(state)
        if warning is not None and not self._warned:
            _logger.warning(warning)
        self._warned = warning is not None

    def warning(self, state: Sequence[StateFigures]) -> str | None:
        """What there is to say of the limit now."""
        used = sum(s.bytes for s in state)
        if used < self._limit * WARN_AT:
            return None
        share = used * 100 // self._limit
        return f"{self._name} keeps {used} bytes of state, {share} % of its max_state_bytes ({self._limit})."
