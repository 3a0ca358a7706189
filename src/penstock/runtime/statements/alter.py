"""ALTER."""

from __future__ import annotations

from dataclasses import replace

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.planned import Planned
from penstock.runtime.statements.ddl import check_columns
from penstock.runtime.statements.named import check_named_queries
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.sql import statements as st


def add_column(engine: Engine, s: st.AlterSourceAddColumn) -> None:
    """ALTER SOURCE … ADD COLUMN. The column is NULL in older rows; existing queries keep the columns that they name."""
    with engine.ddl:
        info = engine.catalog.get(s.name)
        if info is None or info.kind is not Kind.SOURCE:
            raise fail("PSK-1002", f"Source {s.name} is not found.")
        if info.column(s.column.name) is not None:
            raise fail("PSK-1014", f"{info.name} already has a column {s.column.name}.")
        if not s.column.nullable:
            raise fail(
                "PSK-5006",
                "An added column is NULL in older rows, so it cannot be NOT NULL.",
                hint="Leave NOT NULL out.",
            )
        check_columns(engine, [s.column])
        grown = replace(info, columns=(*info.columns, s.column))
        again = _planned_again(engine, grown)
        defaults = engine.defaults(grown.columns)
        with uninterrupted():
            engine.catalog.replace(grown)
            # Readers first: the new plans can read rows without the column, but the old plans cannot read rows with it.
            for reader, planned in again:
                engine.jobs.planned[reader.id] = planned
                if engine.running and not engine.jobs.hosted.member(reader.id):
                    engine.jobs.restart(reader)
            # A reader that cannot start again reports it in its status.
            engine.jobs.hosted.renew(info.id)
            engine.storage.regrow(grown, defaults)


def _planned_again(engine: Engine, grown: ObjectInfo) -> list[tuple[ObjectInfo, Planned]]:
    """The plans of a source's readers with the added column. Refused if the columns of a reader would change."""
    imagined = engine.catalog.imagined(grown)
    check_named_queries(engine, grown, imagined)
    again = []
    for reader in engine.catalog.dependents(grown.id):
        try:
            planned = engine.jobs.planner.stored(reader, imagined)
        except PenstockError as error:
            if error.code != "PSK-6003":
                raise
            planned = None
        if planned is None:
            raise fail(
                "PSK-1009",
                f"{engine.owner(reader).name} selects all columns of {grown.name}.",
                hint="Name the columns there, or drop it first.",
            )
        again.append((reader, planned))
    return again
