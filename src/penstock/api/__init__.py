"""The Python API."""

from __future__ import annotations

from penstock.api.database import Database, open, open_async
from penstock.api.result import Result
from penstock.api.source import SourceHandle
from penstock.serve.change import Change
from penstock.serve.subscription import Subscription

__all__ = ["Change", "Database", "Result", "SourceHandle", "Subscription", "open", "open_async"]
