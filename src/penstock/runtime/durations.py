"""Parses durations and sizes in options."""

from __future__ import annotations

import re

from penstock.errors import fail
from penstock.sql import intervals

_SIZE = re.compile(r"^\s*(\d+)\s*(b|kb|mb|gb|tb)\s*$", re.IGNORECASE)
_UNIT = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def duration_ms(text: str) -> int:
    """`'30 seconds'` in milliseconds."""
    found = intervals.from_text(text)
    millis = intervals.millis(found) if found is not None else None
    if millis is None:
        raise fail("PSK-1011", f"'{text}' is not a duration.", hint="Write it like '30 seconds' or '2 hours'.")
    return millis


def size_bytes(text: str) -> int | None:
    """`'64mb'` in bytes; None if the text is not a size."""
    match = _SIZE.match(text)
    return int(match[1]) * _UNIT[match[2].lower()] if match else None
