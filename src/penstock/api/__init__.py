"""The Python API."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.api.opening import open, open_async

if TYPE_CHECKING:
    from penstock.api.database import Database
    from penstock.api.result import Result
    from penstock.api.source import SourceHandle
    from penstock.api.statements import RestrictedSession
    from penstock.serve.change import Change
    from penstock.serve.group import GroupChange, GroupSubscription
    from penstock.serve.subscription import Subscription

_HOMES = {
    "Change": "penstock.serve.change",
    "Database": "penstock.api.database",
    "GroupChange": "penstock.serve.group",
    "GroupSubscription": "penstock.serve.group",
    "RestrictedSession": "penstock.api.statements",
    "Result": "penstock.api.result",
    "SourceHandle": "penstock.api.source",
    "Subscription": "penstock.serve.subscription",
}

__all__ = [
    "Change",
    "Database",
    "GroupChange",
    "GroupSubscription",
    "RestrictedSession",
    "Result",
    "SourceHandle",
    "Subscription",
    "open",
    "open_async",
]


def __getattr__(name: str) -> object:
    # Importing these takes a second, during which `open` can start Spark.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'penstock.api' has no attribute {name!r}")
