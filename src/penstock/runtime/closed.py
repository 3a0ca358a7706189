"""Works on the files of a database that no process has open. Needs no JVM."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.config import load_settings
from penstock.connect import Access
from penstock.errors import fail
from penstock.log import FolderLock
from penstock.runtime.jobs.restoring import carried_out, fetch_missing, planned, prepared
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage.restoring import finish
from penstock.runtime.storage.storage import Storage

_JVM_S = 30.0
"""The JVM of a killed process exits within seconds."""


@contextmanager
def closed_database(folder: Path) -> Iterator[Storage]:
    """The storage of a database, without objects. Raises PSK-0009 if there is none, PSK-0005 if a process has it open."""
    folder = folder.absolute()
    if not (folder / "log").is_dir():
        raise fail("PSK-0009", f"{folder} is not the folder of a database.")
    lock = FolderLock(folder)
    lock.acquire()
    try:
        _await_jvm(folder / "jvm.lock")
        storage = Storage(folder, load_settings(folder, {}))
        try:
            yield storage
        finally:
            storage.close()
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


def restore_closed(folder: Path, id: int, *, backup: bool, keep_delivered: bool) -> tuple[int, int | None]:
    """Takes a database back to a checkpoint; returns its last commit, and the checkpoint that has the state before."""
    with closed_database(folder) as storage:
        access = Access.of(storage.settings, storage.layout.root)
        fetch_missing(storage, id)
        restoration = planned(storage, id, access, keep_delivered=keep_delivered)
        saved = save(storage, capture_all(storage)).id if backup else None
        made = prepared(storage, restoration)
        decided = carried_out(storage, made, restoration)
        storage.close()
        decided()
        finish(storage.layout.root)
    return restoration.manifest.lsn, saved
