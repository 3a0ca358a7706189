"""SET: changes one setting while the database is open."""

from __future__ import annotations

from pydantic import ValidationError

from penstock.config.keys import parse_key
from penstock.config.settings import Settings
from penstock.errors import fail

ORIGIN = "SET"

# Settings that are read at each use. All others were read once, when something was started with them.
CHANGEABLE = (
    "log.retain_bytes",
    "log.max_bytes",
    "engine.max_rows_per_epoch",
    "engine.poll_timeout_ms",
    "engine.max_future_skew_ms",
    "engine.release_failed_ms",
    "engine.drift_timeout_ms",
    "engine.max_pending_rows",
    "engine.max_pending_bytes",
    "engine.full_timeout_ms",
    "checkpoint.interval_ms",
    "checkpoint.max_retained",
    "checkpoint.timeout_ms",
    "read.consistency",
    "read.stale",
    "read.timeout_ms",
    "subscribe.buffer_bytes",
    "subscribe.buffer_messages",
    "delivery.guarantee",
    "delivery.write_timeout_ms",
)


def changed(settings: Settings, name: str, value: str) -> Settings:
    """Returns a copy of the settings with one of them changed. The others keep their values and origins.

    Raises PSK-0001 for an unknown name, PSK-0002 for a bad value, PSK-0011 for a setting that is fixed while the database is open.
    """
    key = parse_key(Settings, name.lower())
    if str(key) not in CHANGEABLE:
        raise fail(
            "PSK-0011",
            f"{key} is fixed while the database is open.",
            hint=f"Pass it to penstock.open(config=…). SET can change {', '.join(CHANGEABLE)}.",
        )
    section, last = key.path
    tree = settings.model_dump()
    tree[section][last] = value
    try:
        made = Settings.model_validate(tree)
    except ValidationError as problem:
        reason = problem.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise fail("PSK-0002", f"{key} = {value!r} is not valid: {reason}.") from problem
    made._origins.update(settings._origins | {str(key): ORIGIN})
    return made
