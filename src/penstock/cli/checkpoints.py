"""`penstock checkpoint`: the checkpoints in a folder. Needs no JVM."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from penstock.cli import console
from penstock.cli.options import Format
from penstock.cli.render import print_result
from penstock.disk import FolderLock
from penstock.errors import PenstockError, fail
from penstock.runtime.closed import restore_closed
from penstock.runtime.jobs.remote import RemoteCheckpoints, remote
from penstock.runtime.jobs.savepoints import export_checkpoint, find_savepoint, import_checkpoint
from penstock.runtime.storage.checkpoints import CheckpointStore, Manifest
from penstock.runtime.storage.layout import Layout

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("lsn", pa.int64()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("queries", pa.int64()),
        ("bytes", pa.int64()),
        ("status", pa.string()),
    ]
)


def list_checkpoints(place: str, *, verify: bool, output: Format) -> int:
    """Prints the checkpoints of a folder, or of a place that they were exported or uploaded to; `verify` reads all of each. Returns 1 if one is damaged."""
    if "://" not in place and Layout(Path(place).absolute()).has_database:
        store = _store(Path(place))
        found = (_row(store, id, verify=verify) for id in store.ids())
        # One that is pruned while it is read is not damaged.
        rows = [r for r in found if _is_sound(r) or r["id"] in store.ids()]
    else:
        rows = _elsewhere(place, verify=verify)
    print_result(pa.Table.from_pylist(rows, schema=_SCHEMA), output, console.out())
    return int(not all(map(_is_sound, rows)))


def _elsewhere(place: str, *, verify: bool) -> list[dict[str, object]]:
    there = remote(place)
    rows = [_uploaded(there, id, verify=verify) for id in there.ids()]
    if not rows:
        try:
            savepoint = find_savepoint(place, verify=verify)
        except PenstockError as error:
            return [{"id": None, "status": str(error)}]
        if savepoint is None:
            raise fail("PSK-6008", f"{there.place.url} has no database, no savepoint and no uploaded checkpoints.")
        rows = [_shown(savepoint, verify=verify)]
    return rows


def _is_sound(row: dict[str, object]) -> bool:
    return row["status"] in ("complete", "verified")


def prune_checkpoints(folder: Path, keep: int) -> int:
    """Removes all but the newest checkpoints of a folder that no process has open."""
    store = _store(folder)
    lock = FolderLock(folder)
    lock.acquire()
    try:
        gone = store.prune(keep)
    finally:
        lock.release()
    sys.stdout.write(f"removed {', '.join(map(str, gone)) or 'nothing'}\n")
    return 0


def restore_checkpoint(folder: Path, id: int, *, backup: bool, keep_delivered: bool) -> int:
    """Takes a database that no process has open back to a checkpoint."""
    done = restore_closed(folder, id, backup=backup, keep_delivered=keep_delivered)
    kept = ""
    if done.backup is not None:
        kept = f"; the state before is checkpoint {done.backup}"
    if done.kept is not None:
        kept = f"; the damaged files are in {done.kept}"
    sys.stdout.write(f"restored checkpoint {id}, commit {done.lsn}{kept}\n")
    return 0


def export(folder: Path, id: int, url: str) -> int:
    """Copies a checkpoint out of a folder, which may be in use."""
    manifest = export_checkpoint(_store(folder), id, url)
    sys.stdout.write(f"exported checkpoint {id}, commit {manifest.lsn}, {manifest.bytes} bytes\n")
    return 0


def import_(url: str, folder: Path, id: int | None) -> int:
    """Makes a database from a savepoint, or from an uploaded checkpoint."""
    manifest = import_checkpoint(url, folder, id)
    sys.stdout.write(f"imported commit {manifest.lsn}, {manifest.bytes} bytes\n")
    return 0


def _store(folder: Path) -> CheckpointStore:
    layout = Layout(folder.absolute())
    if not layout.has_database:
        raise fail("PSK-0009", f"{folder} is not the folder of a database.")
    return CheckpointStore(layout.checkpoints)


def _uploaded(there: RemoteCheckpoints, id: int, *, verify: bool) -> dict[str, object]:
    try:
        found = there.verify(id) if verify else there.get(id)
    except PenstockError as error:
        return {"id": id, "status": str(error)}
    return {
        "id": id,
        "lsn": found.lsn,
        "time": found.time_ms,
        "queries": found.queries,
        "bytes": found.bytes,
        "status": "verified" if verify else "complete",
    }


def _row(store: CheckpointStore, id: int, *, verify: bool) -> dict[str, object]:
    try:
        return _shown(store.verify(id) if verify else store.manifest(id), verify=verify)
    except PenstockError as error:
        return {"id": id, "status": str(error)}


def _shown(manifest: Manifest, *, verify: bool) -> dict[str, object]:
    return {
        "id": manifest.id,
        "lsn": manifest.lsn,
        "time": manifest.time_ms,
        "queries": len(manifest.jobs),
        "bytes": manifest.bytes,
        "status": "verified" if verify else "complete",
    }
