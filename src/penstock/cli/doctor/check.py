"""The outcome of one check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`ok` False is a failure; None means that it was not needed. `advice` says what to do about a failure."""

    name: str
    ok: bool | None
    found: str
    advice: str = ""
