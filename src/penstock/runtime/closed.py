"""Works on the files of a database that no process has open. Needs no JVM."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from penstock.config import Settings, load_settings
from penstock.connect import Access
from penstock.disk import FolderLock
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.damaged import damaged_database
from penstock.runtime.jobs.restoring import Before, carried_out, fetch_missing, planned, prepared
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage.checkpoints import CheckpointStore
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.restoring import decide, decided, finish
from penstock.runtime.storage.storage import Storage

_JVM_S = 30.0
"""The JVM of a killed process exits within seconds."""


@contextmanager
def closed_database(folder: Path) -> Iterator[Storage]:
    """The storage of a database, without objects. Raises PSK-0009 if there is none, PSK-0005 if a process has it open."""
    with _alone(folder) as root, closing(Storage(root, load_settings(root, {}))) as storage:
        yield storage


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    folder = folder.absolute()
    if not Layout(folder).has_database:
        raise fail("PSK-0009", f"{folder} is not the folder of a database.")
    lock = FolderLock(folder)
    lock.acquire()
    try:
        _await_jvm(folder / "jvm.lock")
        yield folder
    finally:
        lock.release()


def _await_jvm(path: Path) -> None:
    if not path.exists():
        return
    deadline = time.monotonic() + _JVM_S
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= deadline:
                    raise fail("PSK-0005", f"The JVM of a process that has ended still uses {path.parent}.") from None
                time.sleep(0.1)
    finally:
        os.close(fd)


@dataclass(frozen=True)
class Restored:
    """The last commit of a restored database, and what has the state before: a checkpoint or, if the database was damaged, a folder with its files."""

    lsn: int
    backup: int | None = None
    kept: Path | None = None


def restore_closed(folder: Path, id: int, *, backup: bool, keep_delivered: bool) -> Restored:
    """Takes a database back to a checkpoint, also one whose catalogue or log is damaged."""
    with _alone(folder) as root:
        settings = load_settings(root, {})
        try:
            storage = Storage(root, settings)
        except PenstockError as why:
            if why.code != "PSK-6001" or decided(root):
                raise
            return _restore_damaged(root, settings, id, backup=backup, keep_delivered=keep_delivered)
        with closing(storage):
            fetch_missing(storage.layout, storage.checkpoints, settings.checkpoint.url, id)
            access = Access.of(settings, root)
            restoration = planned(Before.of(storage), id, access, keep_delivered=keep_delivered)
            saved = save(storage, capture_all(storage)).id if backup else None
            before = Before.of(storage)
            made = prepared(before, restoration)
            storage.close()
            carried_out(before, made, restoration)()
        finish(root)
    return Restored(restoration.manifest.lsn, saved)


def _restore_damaged(root: Path, settings: Settings, id: int, *, backup: bool, keep_delivered: bool) -> Restored:
    layout = Layout(root)
    store = CheckpointStore(layout.checkpoints)
    fetch_missing(layout, store, settings.checkpoint.url, id)
    before = damaged_database(layout, store)
    restoration = planned(before, id, Access.of(settings, root), keep_delivered=keep_delivered)
    made = prepared(before, restoration)
    names = (f"damaged-{n}" for n in count(1))
    kept = next(n for n in names if not (root / n).exists()) if backup else None
    decide(root, made, restoration.manifest, kept)
    finish(root)
    return Restored(restoration.manifest.lsn, kept=root / kept if kept else None)
