"""The Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.opening import open, open_async

if TYPE_CHECKING:
    from penstock.api.database import Database
    from penstock.api.result import Result
    from penstock.api.source import SourceHandle
    from penstock.serve.change import Change
    from penstock.serve.subscription import Subscription

__all__ = ["Change", "Database", "Result", "SourceHandle", "Subscription", "open", "open_async"]


def __getattr__(name: str) -> object:
    # Their imports take a second; `open` can start Spark meanwhile.
    if name in __all__:
        from penstock.api import database

        return getattr(database, name)
    raise AttributeError(f"module 'penstock.api' has no attribute {name!r}")
