"""Contents on disk: whatever happens to the process, the disk or a file, they are right, rebuilt or refused."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.runtime.storing import drop, in_contents, make, opened, part, settings
from tests.unit.runtime.test_snapshots import DAMAGES, forgotten

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.disk.crash import VARIABLE
from penstock.errors import PenstockError
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage import storage as module
from penstock.runtime.storage.scrub import Scrub
from penstock.runtime.storage.storage import Storage
from penstock.serve.ondisk import MANIFEST
from penstock.serve.ondisk.segment import Segment

ROWS = [(i, f"value {i}", 1) for i in range(300)]
WANT = Counter(r[:2] for r in ROWS)


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects go to disk with their first row."""
    monkeypatch.setattr(module, "size_of", lambda text: 1)


def files(storage: Storage, info: ObjectInfo) -> list[Path]:
    return sorted(storage.layout.contents(info.id).glob("*.seg"))


def saved(storage: Storage, *objects: ObjectInfo) -> None:
    """The contents are on disk, and the log before them is gone."""
    storage.save_contents()
    storage.store.settle()
    forgotten(storage, storage.log.head, *objects)


def looked_up(storage: Storage, info: ObjectInfo) -> None:
    for i in range(300):
        storage.check_sound(info)
        [row] = storage.store.lookup(info.id, pa.table({"k": [i]})).to_pylist()
        assert tuple(row.values()) == ROWS[i][:2]


def test_opening_reads_no_rows_and_the_log_after_the_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS)])
        saved(storage, table)
        assert not storage.layout.snapshot(table.id).exists()
        storage.commit([part(table, (*ROWS[0][:2], -1))])

    def unread(*_: object) -> None:
        raise AssertionError("a block was read")

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "_pread", unread)
        with opened(tmp_path) as storage:
            assert storage.store.position(table.id) == (2, 2) and storage.store.count(table.id) == 299
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == WANT - Counter([ROWS[0][:2]])


def test_a_table_without_a_key_and_rows_that_only_come(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        bag, grows = make(storage, "b", key=()), make(storage, "s", Kind.VIEW, changelog=False)
        for _ in range(5):
            storage.commit([part(bag, *((*r[:2], 2) for r in ROWS)), part(grows, *(r[:2] for r in ROWS))])
        storage.commit([part(bag, *((*r[:2], -3) for r in ROWS[:100]))])
        saved(storage, bag, grows)
    with opened(tmp_path) as storage:
        assert in_contents(storage, grows) == Counter(dict.fromkeys(WANT, 5))
        assert in_contents(storage, bag) == Counter({r[:2]: 7 if r[0] < 100 else 10 for r in ROWS})
        assert sorted(storage.store.on_disk()) == [bag.id, grows.id]


def test_a_dropped_object_leaves_no_files_and_a_crash_none_that_nobody_knows(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        kept, gone = make(storage, "t"), make(storage, "u")
        storage.commit([part(o, *ROWS) for o in (kept, gone)])
        saved(storage, kept, gone)
        drop(storage, gone)
        assert not storage.layout.contents(gone.id).exists()
        left = storage.layout.contents(kept.id) / "99.seg"
        left.write_bytes(b"not finished")
        (storage.layout.contents(77)).mkdir()
    storage.layout.sweep({kept.id}, {})
    assert [p.name for p in (tmp_path / "views").iterdir()] == [str(kept.id)]
    with opened(tmp_path) as storage:
        assert not left.exists() and in_contents(storage, kept) == WANT


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
def test_a_damaged_file_is_found_when_it_is_read_and_never_served(tmp_path: Path, damage: int) -> None:
    with opened(tmp_path) as storage:
        table, other = make(storage, "t"), make(storage, "u")
        storage.commit([part(o, *ROWS) for o in (table, other)])
        saved(storage, table, other)
        file, *_ = files(storage, table)
    DAMAGES[damage](file)
    with opened(tmp_path) as storage:
        with suppress(PenstockError):
            # The filter of the keys is not read by a scan.
            assert in_contents(storage, table) == WANT
        with pytest.raises(PenstockError, match=r"PSK-600[14]"):
            looked_up(storage, table)
        assert set(storage.damage) == {table.id}
        with pytest.raises(PenstockError, match="PSK-6004: The contents of t are damaged"):
            storage.check_sound(table)
        assert in_contents(storage, other) == WANT
    # What was found counts for the next process.
    with opened(tmp_path) as storage:
        assert set(storage.damage) == {table.id} and in_contents(storage, other) == WANT


@pytest.mark.parametrize("name", [MANIFEST, "*.seg"])
@pytest.mark.parametrize("damage", [*DAMAGES[:4], Path.unlink], ids=lambda d: d.__name__)
def test_a_damaged_object_stops_no_checkpoint(tmp_path: Path, name: str, damage: Callable[[Path], object]) -> None:
    with opened(tmp_path) as storage:
        table, other = make(storage, "t"), make(storage, "u")
        storage.commit([part(o, *ROWS) for o in (table, other)])
        saved(storage, table, other)
        file = next(storage.layout.contents(table.id).glob(name))
        whole = save(storage, capture_all(storage))
        assert whole.damaged == ()
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data)
    damage(file)
    with opened(tmp_path) as storage:
        if name == MANIFEST or file.exists():
            with suppress(PenstockError):
                looked_up(storage, table)
        assert set(storage.damage) == {table.id}
        made = save(storage, capture_all(storage))
        assert made.damaged == ("t",) and storage.checkpoints.verify(made.id) == made
        assert not [n for n in made.files if n.startswith(f"views/{table.id}")]
        assert [n for n in made.files if n.startswith(f"views/{other.id}")]
    # Nor in a database that is not open, where a list of files is all that is read.
    with closing(Storage(tmp_path, settings())) as storage:
        damaged = ("t",) if name == MANIFEST or not file.exists() else ()
        assert save(storage, capture_all(storage)).damaged == damaged


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
def test_a_damaged_list_of_files_is_not_believed(tmp_path: Path, damage: int) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS)])
        saved(storage, table)
    DAMAGES[damage](storage.layout.contents(table.id) / MANIFEST)
    with opened(tmp_path) as storage:
        assert set(storage.damage) == {table.id}


@pytest.mark.parametrize("lost", ["file", "manifest", "older", "swapped"])
def test_contents_are_rebuilt_while_the_log_has_all_changes(tmp_path: Path, lost: str) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS[:100])])
        storage.save_contents()
        place = storage.layout.contents(table.id)
        shutil.copytree(place, tmp_path / "older")
        storage.commit([part(table, *ROWS[100:])])
        storage.save_contents()
        storage.store.settle()
    if lost == "file":
        files(storage, table)[0].unlink()
    elif lost == "manifest":
        (place / MANIFEST).write_bytes(b"garbage")
    elif lost == "older":
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "older", place)
    else:
        one, *_ = files(storage, table)
        shutil.copy(tmp_path / "older" / MANIFEST, one)
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == WANT and not storage.damage
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == WANT and not storage.damage


def test_the_scrub_finds_what_nobody_reads(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table, other = make(storage, "t"), make(storage, "u")
        storage.commit([part(o, *ROWS) for o in (table, other)])
        saved(storage, table, other)
        file, *_ = files(storage, table)
        data = bytearray(file.read_bytes())
        data[1000] ^= 1
        file.write_bytes(data)
        scrub = Scrub(storage)
        for _ in range(3):
            scrub.step(1)
        assert set(storage.damage) == {table.id}
        assert in_contents(storage, other) == WANT


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS[:100])])
        real = os.open

        def full(path: object, *rest: int, **more: int) -> int:
            if "/views/" in str(path) and ".tmp" in str(path):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(path, *rest, **more)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            for i in range(100, 300, 20):
                storage.commit([part(table, *ROWS[i : i + 20])])
            with pytest.raises(PenstockError, match="PSK-7004"):
                storage.save(table)
            assert in_contents(storage, table) == WANT and not storage.damage
            # What is not on disk stays in the log.
            assert storage.store.saved_lsn(table.id) < storage.log.head
        assert storage.save(table) == storage.log.head
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == WANT


def test_few_files_remain_whatever_is_written(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        for epoch in range(60):
            old = [(k, f"{epoch - 1}", -1) for k in range(20)] if epoch else []
            storage.commit([part(table, *((k, f"{epoch}", 1) for k in range(20)), *old)])
        storage.save_contents()
        storage.store.settle()
        disk = storage.store.on_disk()[table.id]
        # Rows that were replaced are gone: each key had sixty.
        assert sum(s.facts.rows for s in disk.segments) <= 60 and len(disk.segments) <= 4
        assert len(files(storage, table)) == len(disk.segments)
        assert in_contents(storage, table) == {(k, "59"): 1 for k in range(20)}


@pytest.mark.parametrize("step", ["contents.written", "contents.published", "contents.merged"])
def test_a_process_that_is_killed_at_any_step_loses_and_doubles_nothing(tmp_path: Path, step: str) -> None:
    for number in (9, 2)[: times(2, quick=1)]:
        died = _run(tmp_path, f"{step}:{number}")
        assert died.returncode == -9, died.stderr
        acknowledged = max(map(int, died.stdout.split()), default=-1)
        with opened(tmp_path) as storage:
            last = storage.log.head
            assert last > acknowledged and not storage.damage
            for info in storage.catalog.objects():
                assert in_contents(storage, info) == {(i, f"row {i}"): 1 for i in range(max(0, last - 7), last)}


def _run(folder: Path, at: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.unit.runtime.dying", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {VARIABLE: at},
    )
