"""Reads the names for completion from the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.shell.completion import Names

if TYPE_CHECKING:
    from penstock.api import Database


def read_names(db: Database) -> Names:
    """The names and columns of all objects in the database."""
    nodes = db.topology().nodes
    return Names(
        {node.name: node.kind for node in nodes},
        {node.name: tuple(name for name, _ in node.columns) for node in nodes if node.columns},
    )
