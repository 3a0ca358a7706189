"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.commands import SWITCH

debug_wanted = False


def _set_debug(value: bool) -> bool:
    global debug_wanted
    debug_wanted = debug_wanted or value
    return value


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class Level(StrEnum):
    """How important a report is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Sort(StrEnum):
    """Columns of `penstock top`; numbers are sorted from the largest."""

    NAME = "name"
    ROWS = "rows"
    RATE = "rate"
    PENDING = "pending_rows"
    LAG = "lag_ms"
    LATE = "late_rows"
    STATE_ROWS = "state_rows"
    STATE = "state_bytes"
    SUBSCRIBERS = "subscribers"


Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, metavar=SWITCH, help="Show the Python traceback of an error.")
]
Folder = Annotated[
    str | None,
    typer.Option("--folder", "-f", metavar="FOLDER", help="The database's folder. Without it: a temporary database."),
]
Output = Annotated[Format, typer.Option("--format", help="How rows are printed.")]
