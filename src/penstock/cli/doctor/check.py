"""The outcome of one check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`ok`: False is a failure, None means not needed. `advice` says how to fix a failure."""

    name: str
    ok: bool | None
    found: str
    advice: str = ""
