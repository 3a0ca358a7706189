"""One setting changed while the database is open."""

from __future__ import annotations

from pydantic import ValidationError

from penstock.config.keys import parse_key
from penstock.config.settings import Settings
from penstock.errors import fail

ORIGIN = "SET"

# What is read anew each time it is needed. Everything else has been built into something that runs.
CHANGEABLE = (
    "log.retain_bytes",
    "log.max_bytes",
    "engine.max_rows_per_epoch",
    "engine.poll_timeout_ms",
    "engine.max_future_skew_ms",
    "engine.release_failed_ms",
    "read.consistency",
    "read.stale",
    "read.timeout_ms",
    "subscribe.buffer_bytes",
    "subscribe.buffer_messages",
)


def changed(settings: Settings, name: str, value: str) -> Settings:
    """The settings with one of them changed; the rest, and where they came from, are kept.

    An unknown name is PSK-0001, a value that does not fit PSK-0002, a setting that is fixed while the database is open PSK-0011.
    """
    key = parse_key(Settings, name.lower())
    if str(key) not in CHANGEABLE:
        raise fail(
            "PSK-0011",
            f"{key} is fixed while the database is open.",
            hint=f"Give it to penstock.open(config=…). SET can change {', '.join(CHANGEABLE)}.",
        )
    section, last = key.path
    tree = settings.model_dump()
    tree[section][last] = value
    try:
        made = Settings.model_validate(tree)
    except ValidationError as problem:
        reason = problem.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise fail("PSK-0002", f"{key} = {value!r} does not fit: {reason}.") from problem
    made._origins.update(settings._origins | {str(key): ORIGIN})
    return made
