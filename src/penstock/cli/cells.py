"""Formats one value for a table, CSV or JSON."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Converts a value to one that JSON supports.

    Times become ISO 8601, decimals and binary (base64) become strings, so that nothing is rounded or lost. NaN and infinities become strings
    because JSON has no number for them.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)


def to_json(value: Any) -> str:
    """A value as JSON text on one line."""
    return json.dumps(plain(value), ensure_ascii=False)


def to_csv(value: Any) -> str:
    """A value as a CSV field before quoting; NULL is empty, nested values are JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return to_json(value)
    return str(plain(value))


def to_cell(value: Any) -> str:
    """A value as a table cell, for people."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ")
        return text.rstrip("0") if "." in text else text
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, dict | list | tuple):
        return to_json(value)
    return str(plain(value))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(plain(value))
    text = repr(value)
    # avoid 101.30000000000001: ten significant digits are enough on screen; files get all digits
    return f"{value:.10g}" if len(text) > 14 and "e" not in text else text


def _duration(value: dt.timedelta) -> str:
    total = value // dt.timedelta(microseconds=1)
    sign = "-" if total < 0 else ""
    seconds, micros = divmod(abs(total), 1_000_000)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{sign}PT{seconds}{fraction}S"
