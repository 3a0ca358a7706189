"""Whether objects can be read: stale rows are never returned as current."""

from __future__ import annotations

import time
from collections.abc import Iterable

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.jobs import QUERIES, Trouble


def check_readable(engine: Engine, infos: Iterable[ObjectInfo], *, stale: bool = False) -> None:
    """Returns when the contents of objects can be read: undamaged, following their inputs, and including everything that this
    database committed before. Otherwise raises the reason, with a hint; stale rows are never returned as current.
    """
    engine.check_open()
    wanted = list(infos)
    for info in wanted:
        engine.storage.check_sound(info)
    reading = engine.settings.read
    if stale or reading.stale or all(i.kind is Kind.TABLE and not i.depends_on for i in wanted):
        # Commits to tables are in their contents before they return.
        return
    behind = engine.jobs.upstream(wanted)
    for o in behind:
        if (trouble := engine.jobs.trouble(o)) is not None:
            raise _refusal(engine, wanted, o, trouble)
    if reading.consistency == "strong":
        _await(engine, wanted, [o for o in behind if o.kind in QUERIES])
    if (error := engine.jobs.uncomputed(wanted)) is not None:
        raise error


def _await(engine: Engine, wanted: list[ObjectInfo], queries: list[ObjectInfo]) -> None:
    seconds = engine.settings.read.timeout_ms / 1000
    deadline = time.monotonic() + seconds
    lsn = engine.log.head
    for info in queries:
        try:
            done = engine.jobs.settle(info, lsn, deadline)
        except PenstockError as error:
            engine.check_open()
            trouble = engine.jobs.trouble(info) or Trouble(info.name, "failed", time.time(), 0, error)
            raise _refusal(engine, wanted, info, trouble) from error
        if not done:
            raise fail(
                "PSK-0010",
                f"{engine.owner(info).name} has not caught up with the last commit within {seconds:g} s.",
                hint="SET read.timeout_ms waits longer; SET read.consistency = 'eventual' reads without waiting.",
            )


def _refusal(engine: Engine, wanted: list[ObjectInfo], blamed: ObjectInfo, trouble: Trouble) -> PenstockError:
    if trouble.error is not None and trouble.error.code == "PSK-6004":
        return trouble.error
    owner = engine.owner(blamed)
    subject = ", ".join(i.name for i in wanted)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(trouble.since)) + " UTC" if trouble.since else ""
    state = "is stopped" if trouble.state == "stopped" else f"has failed since {since}"
    cause = f" ({trouble.error.detail})" if trouble.error is not None else ""
    way = "START PIPELINE" if trouble.state == "stopped" else f"RESTART {owner.kind.value.upper()} {owner.name}"
    return fail(
        "PSK-7006",
        f"{subject} cannot be read: {owner.name} {state}{cause}. Its contents are as of LSN {trouble.lsn}; the log is at {engine.log.head}.",
        hint=f"{way} brings it up to date; SELECT … WITH (stale = true) reads the contents as they are.",
    )
