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
    from penstock.connect import (
        Capabilities,
        LookupSource,
        Sink,
        Source,
        Status,
        register_lookup,
        register_sink,
        register_source,
    )
    from penstock.query import BackpressureStrategy, BatchPolicy, QueryConfig, QueryState, StreamingQuery

__version__ = "0.1.0"

__all__ = [
    "BackpressureStrategy",
    "BatchPolicy",
    "Capabilities",
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
    "LookupSource",
    "PenstockError",
    "QueryConfig",
    "QueryState",
    "RestrictedSession",
    "Result",
    "Sink",
    "Source",
    "SourceHandle",
    "SqlError",
    "StateError",
    "Status",
    "StreamingQuery",
    "Subscription",
    "TimeError",
    "open",
    "open_async",
    "register_lookup",
    "register_sink",
    "register_source",
]


_QUERY = frozenset({"BackpressureStrategy", "BatchPolicy", "QueryConfig", "QueryState", "StreamingQuery"})
_CONNECT = frozenset(
    {"Capabilities", "LookupSource", "Sink", "Source", "Status", "register_lookup", "register_sink", "register_source"}
)


def __getattr__(name: str) -> object:
    # Spark, Arrow and DuckDB take seconds to import; `penstock --help` and errors need none of them.
    if name in _QUERY:
        from penstock import query

        return getattr(query, name)
    if name in _CONNECT:
        from penstock import connect

        return getattr(connect, name)
    if name in __all__:
        from penstock import api

        return getattr(api, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
