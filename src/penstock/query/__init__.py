"""A streaming query as an object with a lifecycle."""

from __future__ import annotations

from penstock.query.cache import CompilerCache
from penstock.query.config import BackpressureStrategy, BatchPolicy, QueryConfig, StateStore
from penstock.query.figures import QueryMetadata, QueryMetrics
from penstock.query.lifecycle import QueryState
from penstock.query.query import QueryId, StreamingQuery

__all__ = [
    "BackpressureStrategy",
    "BatchPolicy",
    "CompilerCache",
    "QueryConfig",
    "QueryId",
    "QueryMetadata",
    "QueryMetrics",
    "QueryState",
    "StateStore",
    "StreamingQuery",
]
