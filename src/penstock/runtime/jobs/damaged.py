"""What is known of a database whose catalogue or log cannot be read, so that it can be taken back to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.catalog.file import read_catalog
from penstock.catalog.objects import Kind
from penstock.disk import Witness
from penstock.errors import PenstockError
from penstock.log import Log
from penstock.runtime.jobs.restoring import Before
from penstock.runtime.storage.checkpoints import CATALOG, CheckpointStore
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.position import position_file
from penstock.runtime.storage.restoring import Present

_COMMITS = 1_000_000
"""More than a database makes between the last that is known of it, which a power cut may have set back by moments, and the damage."""
_OBJECTS = 1000


def damaged_database(layout: Layout, store: CheckpointStore) -> Before:
    """Numbers that were certainly not used before, from what can still be read: the log, if it is the catalogue that is damaged; witnesses, checkpoints and positions of sinks otherwise."""
    manifests, catalogs = [], []
    for id in store.ids():
        try:
            manifests.append(store.manifest(id))
            catalogs.append(read_catalog(store.path(id) / CATALOG))
        except PenstockError:
            continue  # Nobody goes back to that one.
    sinks = {o.id: o for c in catalogs if c is not None for o in c.objects if o.kind is Kind.SINK}
    before = Before(layout, store, Present(0, {}, 0, 0), None, frozenset(sinks))
    positions = [p for p in map(before.position, sinks.values()) if p is not None]
    serial = max([Witness(layout.serial).number, *(m.catalog for m in manifests)])
    ids = max([1, *(c.next_id for c in catalogs if c is not None), *_numbers(layout)]) + _OBJECTS
    there = frozenset(i for i, o in sinks.items() if position_file(layout, o).exists())
    attested = Witness(layout.root / "log" / "head").number
    known = max([attested, *(m.lsn for m in manifests), *(p.lsn for p in positions)])
    unreadable = Before(layout, store, Present(known + _COMMITS, {}, ids, serial), None, there)
    try:
        log = Log.open(layout.root, expected=True)
    except PenstockError:
        return unreadable
    try:
        with log.pinned() as pinned:
            epochs = {i: s.epoch for i, s in pinned.states.items()}
        if pinned.head < known:
            return unreadable
        present = Present(pinned.head, epochs, max(ids, log.highest_id + 1), serial)
        return Before(layout, store, present, (pinned.head, pinned.abandoned), there)
    finally:
        log.close()


def _numbers(layout: Layout) -> Iterable[int]:
    """The ids of objects that have or had a folder."""
    return [int(p.name) for p in layout.jobs.glob("*") if p.name.isdecimal()]


__all__ = ["damaged_database"]
