"""What a sink promises: the guarantee that it was asked for, compared with what its sources, the log and the sink itself can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.config import Settings
from penstock.connect import Capabilities, is_replayable
from penstock.errors import fail
from penstock.runtime.durations import duration_ms

GUARANTEE = "guarantee"
WRITE_TIMEOUT = "write_timeout"
OPTIONS = frozenset({GUARANTEE, WRITE_TIMEOUT})
"""The options of a sink itself, not of its query."""

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class Delivery:
    """`guarantee` is what the sink does; `warning` says for which rows that is not the whole truth."""

    guarantee: str
    warning: str | None = None

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == EXACTLY_ONCE


def delivery(find: Callable[[int], ObjectInfo], settings: Settings, info: ObjectInfo, can: Capabilities) -> Delivery:
    """The guarantee of a sink; `find` returns an object by its id. Raises PSK-5030, PSK-5031 or PSK-5032 if exactly-once is asked for and impossible."""
    asked = info.options.get(GUARANTEE, "").lower() or settings.delivery.guarantee
    lossy = [s for s in _sources(find, info) if s.connector is not None and not is_replayable(s.connector)]
    if asked == EXACTLY_ONCE:
        _check(settings, info, can, lossy)
        return Delivery(EXACTLY_ONCE)
    if asked == AT_LEAST_ONCE or not can.exactly_once:
        return Delivery(AT_LEAST_ONCE)
    if not lossy:
        return Delivery(EXACTLY_ONCE)
    names = ", ".join(s.name for s in lossy)
    return Delivery(
        EXACTLY_ONCE,
        f"PSK-5033: {info.name} delivers exactly once, but rows that {names} has not committed are lost in a crash: it cannot replay.",
    )


def _check(settings: Settings, info: ObjectInfo, can: Capabilities, lossy: list[ObjectInfo]) -> None:
    if not can.exactly_once:
        assert info.connector is not None
        raise fail("PSK-5031", f"{info.name}: {info.connector.name.upper()} cannot deliver exactly once.")
    if lossy:
        assert lossy[0].connector is not None
        kind = lossy[0].connector.name.upper()
        raise fail("PSK-5030", f"{info.name} reads {lossy[0].name}, and {kind} cannot replay rows.")
    if settings.log.wal_mode == "async":
        raise fail(
            "PSK-5032", f"{info.name}: log.wal_mode is 'async', so commits may be lost after they were acknowledged."
        )


def _sources(find: Callable[[int], ObjectInfo], info: ObjectInfo) -> list[ObjectInfo]:
    """The sources that an object reads, directly or not."""
    found: dict[int, ObjectInfo] = {}
    waiting = list(info.depends_on)
    while waiting:
        one = find(waiting.pop())
        if one.id not in found:
            found[one.id] = one
            waiting += one.depends_on
    return [o for o in found.values() if o.kind is Kind.SOURCE]


def write_timeout_s(settings: Settings, info: ObjectInfo) -> float:
    """How long one call of the sink may take. Raises PSK-1011 for zero."""
    text = info.options.get(WRITE_TIMEOUT)
    if text is None:
        return settings.delivery.write_timeout_ms / 1000
    millis = duration_ms(text)
    if millis <= 0:
        raise fail("PSK-1011", f"{WRITE_TIMEOUT} = '{text}' must be more than zero.")
    return millis / 1000
