"""How much state queries may keep: the options `max_state_bytes` and `max_operator_state_bytes` of a query, and the setting `engine.max_state_bytes` for all of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.errors import PenstockError, fail
from penstock.runtime.durations import size_bytes
from penstock.spark.operators import StateFigures

_logger = logging.getLogger(__name__)

QUERY, OPERATOR = "max_state_bytes", "max_operator_state_bytes"
WARN_AT = 0.8
"""The fraction of the limit at which a query warns."""


class StateLimits(NamedTuple):
    """The bytes of state at which a query fails, in all and of one operator; 0: no limit."""

    query: int = 0
    operator: int = 0


UNLIMITED = StateLimits()


def state_limits(options: Mapping[str, str]) -> StateLimits:
    """The limits in the options of a query. Raises PSK-1011."""
    return StateLimits(_size(options, QUERY), _size(options, OPERATOR))


def _size(options: Mapping[str, str], name: str) -> int:
    text = options.get(name)
    if text is None:
        return 0
    size = int(text) if text.isdecimal() else size_bytes(text)
    if not size:
        raise fail("PSK-1011", f"{name} = '{text}' is not a size.", hint="Write it like '64mb'.")
    return size


class StateBudget:
    """The state of all queries of a database together. Thread-safe.

    A query whose state has grown while all together have reached the limit fails. Of queries that have failed or are stopped nothing is counted: their state does not grow.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}

    def check(self, name: str, used: int) -> None:
        """Raises PSK-4002 if a query would take more than there is."""
        with self._lock:
            grown = used > self._used.get(name, 0)
            self._used[name] = used
            total = sum(self._used.values())
            if not grown or total < self.limit:
                return
            del self._used[name]
        raise fail(
            "PSK-4002",
            f"All queries together keep {total} bytes of state, {used} of them {name}; engine.max_state_bytes allows {self.limit}.",
            hint="SHOW QUERIES has the state of each. Drop one, or reduce its state; then RESTART continues this one.",
        )

    def forget(self, name: str) -> None:
        with self._lock:
            self._used.pop(name, None)


class StateGuard:
    """Watches one query: logs once that its state is close to its limit, and fails it at a limit."""

    def __init__(self, name: str, limits: StateLimits, budget: StateBudget | None) -> None:
        self._name = name
        self._limits = limits
        self._budget = budget
        self._warned = False

    @classmethod
    def of(cls, name: str, limits: StateLimits, budget: StateBudget) -> StateGuard | None:
        """None if nothing is limited."""
        return cls(name, limits, budget if budget.limit else None) if any(limits) or budget.limit else None

    def check(self, state: Sequence[StateFigures]) -> None:
        """Called for every epoch before it is recorded, so that the recorded result stays correct when the query fails."""
        used, limit = sum(s.bytes for s in state), self._limits.query
        if 0 < limit <= used:
            raise self._exceeded(f"{self._name} keeps {used} bytes of state", QUERY, limit)
        limit = self._limits.operator
        for i, one in enumerate(state):
            if 0 < limit <= one.bytes:
                raise self._exceeded(f"Operator {i} of {self._name} keeps {one.bytes} bytes of state", OPERATOR, limit)
        if self._budget is not None:
            self._budget.check(self._name, used)
        warning = self.warning(state)
        if warning is not None and not self._warned:
            _logger.warning(warning)
        self._warned = warning is not None

    def _exceeded(self, what: str, option: str, limit: int) -> PenstockError:
        return fail(
            "PSK-4002",
            f"{what}; {option} allows {limit}.",
            hint=f"Drop {self._name} and create it with a larger {option}, or reduce its state: bound joins in time, close windows, filter by now().",
        )

    def warning(self, state: Sequence[StateFigures]) -> str | None:
        """The current warning about the limits of the query, if any."""
        used, largest = sum(s.bytes for s in state), max((s.bytes for s in state), default=0)
        for option, size, limit in ((QUERY, used, self._limits.query), (OPERATOR, largest, self._limits.operator)):
            if limit and size >= limit * WARN_AT:
                share = size * 100 // limit
                return f"{self._name} keeps {size} bytes of state, {share} % of its {option} ({limit})."
        return None

    def forget(self) -> None:
        """The query does not run any more."""
        if self._budget is not None:
            self._budget.forget(self._name)
