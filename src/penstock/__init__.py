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
    from penstock.query import BackpressureStrategy, BatchPolicy, QueryConfig, QueryState, StreamingQuery

__version__ = "0.1.0"

__all__ = [
    "BackpressureStrategy",
    "BatchPolicy",
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
    "QueryConfig",
    "QueryState",
    "RestrictedSession",
    "Result",
    "SourceHandle",
    "SqlError",
    "StateError",
    "StreamingQuery",
    "Subscription",
    "TimeError",
    "open",
    "open_async",
]


_QUERY = frozenset({"BackpressureStrategy", "BatchPolicy", "QueryConfig", "QueryState", "StreamingQuery"})


def __getattr__(name: str) -> object:
    # Spark, Arrow and DuckDB take seconds to import; `penstock --help` and errors need none of them.
    if name in _QUERY:
        from penstock import query

        return getattr(query, name)
    if name in __all__:
        from penstock import api

        return getattr(api, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
