"""Penstock: a streaming SQL database on Apache Spark."""

from __future__ import annotations

from penstock.api import Change, Database, Result, SourceHandle, Subscription, open, open_async
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

__version__ = "0.1.0"

__all__ = [
    "Change",
    "CheckpointError",
    "ConfigError",
    "ConnectorError",
    "Database",
    "ExecutionError",
    "InternalError",
    "JoinError",
    "PenstockError",
    "Result",
    "SourceHandle",
    "SqlError",
    "StateError",
    "Subscription",
    "TimeError",
    "open",
    "open_async",
]
