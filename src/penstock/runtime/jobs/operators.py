"""An operator of a running query, for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorStatus:
    """An operator of a query and its state: rows, and bytes of keys and values."""

    name: str
    state_rows: int
    state_bytes: int
