"""Monitoring figures of one subscription."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubscriptionFigures:
    """`lsn`, `epoch`: the position that its reader has reached. `messages`, `rows`, `bytes`: delivered so far. `pending_…`: queued in memory.
    `behind`: the next changes come from the log or a resync. `dropped`: epochs that a snapshot or a newer message replaced.
    """

    id: int
    name: str | None
    object: str
    state: str
    policy: str
    envelope: str
    since_ms: int
    epoch: int
    lsn: int
    input_lsn: int
    messages: int
    rows: int
    bytes: int
    pending_messages: int
    pending_bytes: int
    behind: bool
    dropped: int
    resyncs: int
    error: str | None
