"""Takes the files of a database back to a checkpoint.

1. `prepare` makes the restored files beside the present ones. 2. `decide` writes down, durably, that they take their places. 3. `finish` moves them.
After a crash, `finish` goes on where it was; without a decision it removes what was prepared. So there is always the old database or the restored one.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.catalog.file import Content, read_catalog, write_catalog
from penstock.disk import crash_point, link, make_folder, read_json, sync_file, sync_folder, unwritable, write_json
from penstock.errors import PenstockError, fail
from penstock.log import go_on_after
from penstock.log.floors import Abandoned
from penstock.runtime.storage.checkpoints import CATALOG, LOG, CheckpointStore, Manifest
from penstock.runtime.storage.format import FORMAT_FILE, write_format

_FORMAT = 1
_DECISION = "restore.json"
_NEW = "restore.new"
_OLD = "restore.old"
IMPORT = "import"
"""A file in a folder into which a savepoint is imported, until that is decided."""
_PARTS = (CATALOG, LOG, "views", "jobs")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Present:
    """What the database has come to, of which no number is used again: the last commit, the epoch of each object, the next object id, and the last change of the catalogue."""

    lsn: int
    epochs: Mapping[int, int]
    next_id: int
    serial: int


@dataclass(frozen=True)
class Prepared:
    """A restored database that waits beside the present one."""

    root: Path
    content: Content
    abandoned: Abandoned
    names: tuple[str, ...]


def prepare(root: Path, store: CheckpointStore, manifest: Manifest, present: Present) -> Prepared:
    """Makes the files of a checkpoint, except for those of jobs, which are the caller's.

    Large files are linked. The last segment of the log is copied, because it grows. Raises PSK-7004.
    """
    made = root / _NEW
    shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(root / _OLD, ignore_errors=True)
    names = {*_PARTS, *(name.partition("/")[0] for name in manifest.files)}
    segments = sorted(n for n in manifest.files if n.startswith(f"{LOG}/") and n.endswith(".seg"))
    try:
        for name in names - {CATALOG}:
            make_folder(made / name)
        for name, (size, _) in manifest.files.items():
            source, target = store.path(manifest.id) / name, made / name
            make_folder(target.parent)
            if name == segments[-1] or name.endswith(".json"):
                target.write_bytes(source.read_bytes()[:size])
                sync_file(target)
            else:
                link(source, target)
        content = read_catalog(made / CATALOG)
        if content is None:
            raise fail("PSK-6001", f"Checkpoint {manifest.id} has no catalogue.")
        content = replace(content, next_id=max(content.next_id, present.next_id), serial=present.serial + 1)
        write_catalog(made / CATALOG, content)
        write_format(made, manifest.folder)
        abandoned = go_on_after(made, present.lsn, present.epochs)
    except OSError as error:
        raise unwritable(made, error) from error
    return Prepared(made, content, abandoned, tuple(sorted({*names, FORMAT_FILE})))


def decide(root: Path, prepared: Prepared, manifest: Manifest, keep: str | None = None) -> None:
    """From here on the database is the restored one. Under the name `keep`, the old files stay. Raises PSK-7004; then it is the old one."""
    try:
        for folder, _, _ in os.walk(prepared.root):
            sync_folder(Path(folder))
    except OSError as error:
        raise unwritable(prepared.root, error) from error
    crash_point("restore.prepared")
    try:
        write_json(root / _DECISION, {"checkpoint": manifest.id, "names": prepared.names, "keep": keep}, _FORMAT)
    except PenstockError:
        # It may be there: the last step is to sync the folder.
        with suppress(OSError):
            (root / _DECISION).unlink(missing_ok=True)
        raise
    crash_point("restore.decided")


def decided(root: Path) -> bool:
    """Whether a restore is under way that the next open ends."""
    return (root / _DECISION).exists()


def discard(root: Path) -> None:
    """Removes what was prepared and not decided."""
    if not decided(root):
        shutil.rmtree(root / _NEW, ignore_errors=True)


def finish(root: Path) -> int | None:
    """Ends a restore that a crash may have interrupted. Returns the checkpoint, if one was decided. No process has the database open. Raises PSK-7004, PSK-6001, PSK-6008 for an import that was not decided."""
    new, old = root / _NEW, root / _OLD
    try:
        found = read_json(
            root / _DECISION,
            _FORMAT,
            lost="A restore was under way, and which files belong to it is unknown.",
            hint=f"The restored files are in {new} and {root}, the earlier ones in {old}. Restore the folder from a backup.",
        )
    except FileNotFoundError:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        if (root / IMPORT).exists():
            raise fail(
                "PSK-6008", f"An import into {root} was interrupted.", hint="Import again, or remove the folder."
            ) from None
        return None
    try:
        old.mkdir(exist_ok=True)
        for name in found["names"]:
            if not (new / name).exists():
                continue  # It has been moved.
            if (root / name).exists():
                os.replace(root / name, old / name)
                sync_folder(root)
            crash_point("restore.moved")
            os.replace(new / name, root / name)
            sync_folder(root)
        crash_point("restore.replaced")
        if (kept := found.get("keep")) and not (root / kept).exists():
            os.replace(old, root / kept)
        # Without the decision it would say that nothing was decided.
        (root / IMPORT).unlink(missing_ok=True)
        (root / _DECISION).unlink()
        sync_folder(root)
    except OSError as error:
        raise fail(
            "PSK-7004",
            f"{root} could not be written: {error.strerror or error}.",
            hint=f"The restore from checkpoint {found['checkpoint']} was decided: the next open ends it.",
        ) from error
    crash_point("restore.finished")
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(new, ignore_errors=True)
    _logger.warning("the database was restored from checkpoint %d", found["checkpoint"])
    return int(found["checkpoint"])
