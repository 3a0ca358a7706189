"""Penstock: a streaming SQL database on Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import (
    CheckpointError,
    ConfigError,
    ConnectorError,
    ExecutionError,
    InternalError,
    JoinError,
    PenstockError,
    SqlError,
    StateError,
    TimeError,
)

if TYPE_CHECKING:
    from penstock.api import (
        Change,
        Database,
        GroupChange,
        GroupSubscription,
        RestrictedSession,
        Result,
        SourceHandle,
        Subscription,
        open,
        open_async,
    )

__version__ = "0.1.0"

__all__ = [
    "Change",
    "CheckpointError",
    "ConfigError",
    "ConnectorError",
    "Database",
    "ExecutionError",
    "GroupChange",
    "GroupSubscription",
    "InternalError",
    "JoinError",
    "PenstockError",
    "RestrictedSession",
    "Result",
    "SourceHandle",
    "SqlError",
    "StateError",
    "Subscription",
    "TimeError",
    "open",
    "open_async",
]


def __getattr__(name: str) -> object:
    # Spark, Arrow and DuckDB take seconds to import; `penstock --help` and errors need none of them.
    if name in __all__:
        from penstock import api

        return getattr(api, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
