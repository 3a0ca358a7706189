"""RESTORE FROM CHECKPOINT."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.catalog.objects import Kind
from penstock.errors import fail
from penstock.log import Part
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.restoring import Before, carried_out, fetch_missing, planned, prepared, settled

_SHOWN = (Kind.TABLE, Kind.LOOKUP, Kind.STREAM, Kind.VIEW)


@dataclass(frozen=True)
class Restored:
    """The database is as it was at `checkpoint`, with commit `lsn`. `backup` is the checkpoint that has the state before, if one was made."""

    checkpoint: int
    lsn: int
    backup: int | None


def restore(engine: Engine, id: int, *, backup: bool = True, keep_delivered: bool = False) -> Restored:
    """Takes the whole database back to a checkpoint; one that is only at `checkpoint.url` is fetched first. After a crash it is the old database or the restored one.

    LSNs and epochs go on after those that there were. Subscribers get a resync, and subscriptions to queries of their own end (PSK-5023). Sinks take back what they have delivered since; if one cannot, the restore is
    refused (PSK-5022) unless what was delivered is kept. A sink created since is dropped, and its target stays as it is.
    """
    with engine.checkpoints.alone:
        engine.check_open()
        storage = engine.storage
        fetch_missing(storage.layout, storage.checkpoints, engine.settings.checkpoint.url, id)
        return _restore(engine, id, backup=backup, keep_delivered=keep_delivered)


def _restore(engine: Engine, id: int, *, backup: bool, keep_delivered: bool) -> Restored:
    with engine.ddl:
        engine.check_open()
        restoration = planned(Before.of(engine.storage), id, engine.access, keep_delivered=keep_delivered)
        why = fail("PSK-6007", f"The database is being restored from checkpoint {id}.")
        with engine.exchanging(why):
            saved = engine.checkpoints.make(prune=False).id if backup else None
            before = Before.of(engine.storage)
            # Until now rows may have been committed and delivered.
            restoration = settled(before, restoration.manifest, engine.access, keep_delivered=keep_delivered)
            made = prepared(before, restoration)
            engine.reopen(carried_out(before, made, restoration), lambda: _tell(engine, id))
        return Restored(id, restoration.manifest.lsn, saved)


def _tell(engine: Engine, id: int) -> None:
    """Tells every subscriber where its object is now: at a commit of its own, after all that was taken back."""
    storage = engine.storage
    engine.hidden.clear()
    for channel in storage.hub.stats():
        if not engine.catalog.has_id(channel):
            storage.hub.fail(channel, fail("PSK-5023", f"The database was restored from checkpoint {id}."))
            storage.hub.end(channel)
    shown = [o for o in engine.catalog.objects(*_SHOWN) if not o.on_demand and o.id not in storage.damage]
    if shown:
        storage.thaw()
        storage.commit([Part(object_id=o.id, column_count=len(o.columns) + int(o.changelog)) for o in shown])
    for o in shown:
        storage.hub.restart(o.id, f"the database was restored from checkpoint {id}")
