"""What completion knows of the database, read through the statements that every user has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.render import rows
from penstock.cli.shell.completion import Names
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api import Database

KINDS = {"SOURCES": "source", "TABLES": "table", "STREAMS": "stream", "VIEWS": "view", "SINKS": "sink"}


def read_names(db: Database) -> Names:
    """The names and columns of everything in the database."""
    kinds: dict[str, str] = {}
    for plural, kind in KINDS.items():
        for row in rows(db.sql(f"SHOW {plural}").arrow()):
            kinds[str(row[0])] = kind
    return Names(kinds, {n: _columns(db, n) for n, kind in kinds.items() if kind != "sink"})


def _columns(db: Database, name: str) -> tuple[str, ...]:
    quoted = name.replace("`", "``")
    try:
        return tuple(str(row[0]) for row in rows(db.sql(f"DESCRIBE `{quoted}`").arrow()))
    except PenstockError:
        # dropped since it was listed
        return ()
