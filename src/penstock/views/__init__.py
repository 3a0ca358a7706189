"""A host of incrementally maintained views for programs that bring their own write-ahead log."""

from __future__ import annotations

from penstock.views.host import AggregateDelta, Hosted, PersistentHost, WalTransaction, WalUpdate
from penstock.views.plan import CompiledPlan, compile_plan, snapshot_run

__all__ = [
    "AggregateDelta",
    "CompiledPlan",
    "Hosted",
    "PersistentHost",
    "WalTransaction",
    "WalUpdate",
    "compile_plan",
    "snapshot_run",
]
