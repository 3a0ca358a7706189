"""`penstock.open`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import load_settings
from penstock.spark.session import begin

if TYPE_CHECKING:
    from penstock.api.database import Database


def open(
    path: str | Path | None = None,
    *,
    master: str | None = None,
    config: Mapping[str, Any] | None = None,
    start: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Database:
    """Opens a database folder, recovers it and starts its queries. Without a path, or with ":memory:", opens a temporary database.

    `progress` is called with the name of each step.
    """
    folder = None if path is None or str(path) == ":memory:" else Path(path)
    given = dict(config or {})
    if master is not None:
        given["spark.master"] = master
    settings = load_settings(folder, given)
    # Arrow, DuckDB and the SQL parser are imported while the JVM starts.
    begin(settings)
    from penstock.api.database import opened
    from penstock.api.warmup import warm_up

    database = opened(folder, settings, start, progress)
    warm_up(database)
    return database


async def open_async(path: str | Path | None = None, **options: Any) -> Database:
    """`open`, without blocking the event loop."""
    return await asyncio.to_thread(lambda: open(path, **options))
