"""The switch of a query to a version that was computed beside it.

The version is a hidden view with a job of its own. Of what the query has emitted and what the version has, the difference is one commit of the query; from there on the version's job makes
the query's epochs. The switch takes effect with one change of the catalogue, after which the version is marked as taken. What comes after that can be repeated, and is, when the database is opened.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo, Role, Solo
from penstock.catalog.types import stored_schema
from penstock.disk import crash_point, sync_folder
from penstock.errors import PenstockError
from penstock.log import Part
from penstock.runtime.storage.contents import contents
from penstock.runtime.storage.record import change_part, last_covered
from penstock.runtime.storage.storage import Storage
from penstock.serve.zset import consolidate, negated, weighted

_TAKEN = "taken"
"""The option of a version that has become its query."""


def version_of(storage: Storage, info: ObjectInfo) -> ObjectInfo | None:
    """The version that is computed beside a query."""
    return storage.owned(info.id, Role.VERSION)


def taken(version: ObjectInfo) -> bool:
    return _TAKEN in version.options


def base_of(storage: Storage, object_id: int) -> int:
    """The generation of a query."""
    catalog = storage.catalog
    slots = (h.members[object_id].base for h in catalog.hosted.values() if object_id in h.members)
    return next(slots, catalog.solo.get(object_id, Solo(0, 0)).base)


def difference(storage: Storage, info: ObjectInfo, version: ObjectInfo, base: int) -> list[Part]:
    """What a query and its errors have to emit to become those of the version. It counts as the epoch, of the new generation, up to which the version has got."""
    errors, failed = (storage.owned(o.id, Role.ERRORS) for o in (info, version))
    log = storage.log
    ids = [version.id, *([failed.id] if failed is not None else [])]
    number = max(log.job_epoch(i) for i in ids)
    covers = last_covered(log, ids, 0)
    # What was trimmed has left only how far it had read.
    reached = [e.input_lsn if (e := log.last_entry(i)) else log.covered(i).reach for i in (info.id, version.id)]
    parts = []
    for to, of in ((info, version), (errors, failed)):
        if to is None:
            continue
        schema = stored_schema(to)
        rows = [negated(contents(storage, to)).cast(schema)]
        if of is not None:
            rows.append(weighted(contents(storage, of)).cast(schema))
        part = change_part(to, consolidate(pa.concat_tables(rows)).cast(schema))
        if number >= 0:
            part = replace(part, job_epoch=base + number, covers=covers)
        parts.append(
            replace(
                part,
                watermark=log.watermark(version.id) if to is info else None,
                input_lsn=max(reached) or log.head,
            )
        )
    return parts


def mark_taken(storage: Storage, version: ObjectInfo) -> None:
    """To be part of the change of the catalogue with which a switch takes effect."""
    storage.catalog.replace(replace(version, options={**version.options, _TAKEN: "true"}))


def become(storage: Storage, info: ObjectInfo, version: ObjectInfo) -> None:
    """What follows the change of the catalogue; done a second time, it changes nothing:

    1. the difference is committed;
    2. the version's files become those of the query;
    3. the version is removed.
    """
    folder, old = storage.layout.job(version.id), storage.layout.job(info.id)
    commit_difference(storage, info, version)
    crash_point("swap.committed")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        sync_folder(old.parent)
    crash_point("swap.moved")
    gone = [o for o in (storage.owned(version.id, Role.ERRORS), version) if o is not None]
    storage.catalog.remove(*(o.id for o in gone))
    for o in gone:
        with suppress(Exception):
            storage.detach(o.id)


def commit_difference(storage: Storage, info: ObjectInfo, version: ObjectInfo) -> None:
    base = base_of(storage, info.id)
    owned = [o.id for o in (info, storage.owned(info.id, Role.ERRORS)) if o is not None]
    if storage.layout.job(version.id).exists() and all(storage.log.job_epoch(i) < base for i in owned):
        parts = difference(storage, info, version, base)
        if any(p.batches or p.job_epoch >= 0 for p in parts):
            storage.commit(parts, aligned=False)


def finish_switches(storage: Storage) -> None:
    """Completes what a crash has interrupted."""
    for version in [o for o in storage.catalog.objects(Kind.VIEW) if o.role is Role.VERSION and taken(o)]:
        assert version.owner_id is not None
        info = storage.catalog.by_id(version.owner_id)
        try:
            become(storage, info, version)
        except PenstockError as error:
            storage.damage[info.id] = error
