"""The disk is full at one write of a checkpoint, a restore, an export, an import, an upload or a migration, whichever it is: an error says so, nothing half-made is left, and the next attempt succeeds."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.effort import EFFORT
from tests.unit.runtime.storing import in_contents, make, opened, part
from tests.unit.runtime.test_checkpoints import epoch

from penstock.errors import PenstockError
from penstock.runtime.closed import restore_closed
from penstock.runtime.jobs.remote import identity, remote
from penstock.runtime.jobs.savepoints import export_checkpoint, import_checkpoint
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage.storage import Storage

CALLS = ("link", "replace", "rename", "mkdir", "fsync", "write", "pwrite", "ftruncate", "posix_fallocate")
LASTS = [True, False] if EFFORT > 1 else [True]
REFUSALS = {"PSK-7004", "PSK-6008"}


class Full:
    """Fails one of the calls of this process that need space in a folder, from some number on for as long as the disk is full."""

    def __init__(self, at: int, lasts: bool) -> None:
        self._at = at
        self._lasts = lasts
        self.calls = 0

    def due(self) -> None:
        self.calls += 1
        if self.calls == self._at or (self._lasts and self.calls > self._at):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def full(at: int, *, lasts: bool) -> Iterator[Full]:
    """The disk is full at a call, and at all later ones if it lasts."""
    disk = Full(at, lasts)
    opens = builtins.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if any(c in mode for c in "wax+") and not isinstance(file, int):
            disk.due()
        return opens(file, mode, *args, **kwargs)

    def calling(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            disk.due()
            return call(*args, **kwargs)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, calling(getattr(os, name)))
        patch.setattr(builtins, "open", opening)
        patch.setattr(io, "open", opening)
        yield disk


def filled(folder: Path) -> int:
    """A database with rows before and after a checkpoint."""
    with opened(folder) as storage:
        t = make(storage, "t")
        storage.commit([part(t, *((k, "x", 1) for k in range(3)))])
        epoch(storage.layout.job(7), 1, 2)
        storage.save_contents()
        id = save(storage, capture_all(storage)).id
        storage.commit([part(t, (9, "later", 1))])
    return id


BEFORE, AFTER = {(k, "x"): 1 for k in range(3)}, {**{(k, "x"): 1 for k in range(3)}, (9, "later"): 1}


def contents(storage: Storage) -> dict[Any, int]:
    t = storage.catalog.get("t")
    assert t is not None
    return dict(in_contents(storage, t))


def rows(folder: Path) -> dict[Any, int]:
    with opened(folder) as storage:
        return contents(storage)


class Case:
    """Something that writes. `done` is true of what it has made, `undone` of what a failure must leave."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "db"
        self.place = root / "there"
        self.id = filled(self.folder)

    def act(self) -> None: ...

    def done(self) -> None: ...

    def undone(self) -> None:
        assert rows(self.folder) == AFTER


class Checkpoint(Case):
    storage: Storage

    @property
    def newest(self) -> int:
        return self.storage.checkpoints.ids()[-1]

    def act(self) -> None:
        save(self.storage, capture_all(self.storage))

    def done(self) -> None:
        # The ids of those that could not be made are not used again.
        assert self.newest > self.id and self.storage.checkpoints.verify(self.newest).whole

    def undone(self) -> None:
        assert contents(self.storage) == AFTER and self.storage.checkpoints.ids() == [self.id]
        assert self.storage.checkpoints.verify(self.id).whole


class Restore(Case):
    def act(self) -> None:
        restore_closed(self.folder, self.id, backup=False, keep_delivered=False)

    def done(self) -> None:
        assert rows(self.folder) == BEFORE

    def undone(self) -> None:
        # The decision may have been made: then it is carried out by the next open, and neither is lost.
        assert rows(self.folder) in (AFTER, BEFORE)


class Export(Case):
    def act(self) -> None:
        with opened(self.folder) as storage:
            export_checkpoint(storage.checkpoints, self.id, self.place.as_uri())

    def done(self) -> None:
        shutil.rmtree(self.folder.with_name("copy"), ignore_errors=True)
        import_checkpoint(self.place.as_uri(), self.folder.with_name("copy"))
        assert rows(self.folder.with_name("copy")) == BEFORE

    def undone(self) -> None:
        super().undone()
        if (self.place / "manifest.json").exists():
            # The folder was not synced after all had been written.
            self.done()
            shutil.rmtree(self.place)


class Upload(Case):
    def act(self) -> None:
        with opened(self.folder) as storage:
            there = remote(self.place.as_uri())
            there.upload(storage.checkpoints, self.id, identity(storage.checkpoints.folder))
            there.prune(1)

    def done(self) -> None:
        assert remote(self.place.as_uri()).verify(self.id).id == self.id

    def undone(self) -> None:
        super().undone()
        there = remote(self.place.as_uri())
        assert [there.verify(id).id for id in there.ids()] in ([], [self.id])


class Import(Case):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        with opened(self.folder) as storage:
            export_checkpoint(storage.checkpoints, self.id, self.place.as_uri())

    @property
    def copy(self) -> Path:
        return self.folder.with_name("copy")

    def act(self) -> None:
        import_checkpoint(self.place.as_uri(), self.copy)

    def done(self) -> None:
        assert rows(self.copy) == BEFORE

    def undone(self) -> None:
        if self.copy.exists():
            # It was decided: the next open ends it.
            self.done()
            shutil.rmtree(self.copy)


@pytest.mark.parametrize("lasts", LASTS)
@pytest.mark.parametrize("case", [Restore, Export, Upload, Import])
def test_whichever_write_it_is(tmp_path: Path, case: type[Case], lasts: bool) -> None:
    one = case(tmp_path / "count")
    with full(1 << 30, lasts=False) as disk:
        one.act()
    one.done()
    # Every write in `make test-long`, and every few in `make test`.
    for at in range(1, disk.calls + 1, 1 if EFFORT > 1 else max(1, disk.calls // 4)):
        one = case(tmp_path / str(at))
        refused = None
        with full(at, lasts=lasts):
            try:
                one.act()
            except PenstockError as error:
                refused = error
        if refused is None:
            # It was no write that anything depends on.
            one.done()
            continue
        assert refused.code in REFUSALS, (at, refused)
        one.undone()
        one.act()
        one.done()
        shutil.rmtree(tmp_path / str(at))


@pytest.mark.parametrize("lasts", LASTS)
def test_whichever_write_of_a_checkpoint_it_is(tmp_path: Path, lasts: bool) -> None:
    one = Checkpoint(tmp_path)
    refused: list[str] = []
    with opened(one.folder) as one.storage:
        at = 0
        while True:
            at += 1
            try:
                with full(at, lasts=lasts) as disk:
                    one.act()
            except PenstockError as error:
                refused.append(error.code)
                one.undone()
                continue
            # One that is not needed may fail; then the checkpoint is made.
            one.done()
            if disk.calls < at:
                break
            shutil.rmtree(one.storage.checkpoints.path(one.newest))
        assert at > 10 and set(refused) <= REFUSALS
