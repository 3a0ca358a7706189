"""A full or failing disk fails commits; nothing else is lost, and the log works again when the disk does."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.disk.filling import largest_file
from tests.unit.log.rows import SCHEMA, part

from penstock import disk
from penstock.disk import FolderLock
from penstock.errors import PenstockError
from penstock.log import Log, Mode
from penstock.log import segment as segment_module
from penstock.log.floors import Floors


def keys(log: Log, object_id: int) -> list[int]:
    return [k for e in log.entries(object_id) for k in log.read(e, SCHEMA)["k"].to_pylist()]


def files_open_in(folder: Path) -> list[str]:
    targets = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [t for t in (os.readlink(p) for p in targets if p.is_symlink()) if t.startswith(str(folder))]


def refused(log: Log, commits: int, *, width: int = 3000) -> int:
    """Tries some commits of two objects; how many were refused, all of them in the same way."""
    futures = [log.append_future([part(1, 1000, watermark=1000, width=width), part(2, 1000)]) for _ in range(commits)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    assert all(isinstance(e, PenstockError) and e.code == "PSK-7004" for e in errors)
    assert all("/log/0000000" in str(e) and "Free some disk space" in str(e) for e in errors)
    return len(errors)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_full_disk_refuses_and_heals(tmp_path: Path, mode: Mode) -> None:
    log = Log.open(tmp_path, mode=mode, async_interval_ms=1)
    for k in range(10):
        log.append([part(1, k, watermark=k, width=3000), part(2, k)])
    before = (log.head, log.watermark(1), log.epoch(1), log.epoch(2), log.entries(1), log.entries(2))
    with largest_file(log.entries(1)[-1].offset + 4100):
        assert refused(log, 5) == 5
        assert (log.head, log.watermark(1), log.epoch(1), log.epoch(2), log.entries(1), log.entries(2)) == before
        # What fits is still taken.
        assert log.append([part(2, 10)]).lsn == 11
        assert refused(log, 5) == 5
        log.sync()
    assert log.append([part(1, 11, width=3000), part(2, 11)]).lsn == 12
    for _ in range(2):
        assert (keys(log, 1), keys(log, 2)) == ([*range(10), 11], list(range(12)))
        assert (log.watermark(1), log.epoch(1)) == (9, 11)
        log.close()
        log = Log.open(tmp_path)
    log.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_segment_that_cannot_be_made(tmp_path: Path, mode: Mode) -> None:
    log = Log.open(tmp_path, mode=mode, segment_bytes=4000, async_interval_ms=1)
    log.append([part(1, 0, width=3000), part(2, 0)])
    with largest_file(10):
        assert refused(log, 3) == 3
        assert sorted(p.name for p in (tmp_path / "log").iterdir()) == ["00000001.seg", "head"]
    log.append([part(1, 1, width=3000), part(2, 1)])
    log.close()
    log = Log.open(tmp_path)
    assert (keys(log, 1), keys(log, 2), log.head) == ([0, 1], [0, 1], 2)
    log.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_closing_and_opening_on_a_full_disk(tmp_path: Path, mode: Mode) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire()
    log = Log.open(tmp_path, mode=mode, async_interval_ms=60_000)
    log.append([part(2, 0)])
    with largest_file(1):
        assert refused(log, 2) == 2
        log.close()
        lock.release()
        assert files_open_in(tmp_path) == []
        lock.acquire()
        log = Log.open(tmp_path, mode=mode)
        assert (keys(log, 2), refused(log, 1)) == ([0], 1)
        log.close()
        lock.release()


def test_a_log_that_cannot_be_made(tmp_path: Path) -> None:
    with largest_file(1), pytest.raises(PenstockError) as error:
        Log.open(tmp_path / "db")
    assert (error.value.code, "00000001.seg" in str(error.value)) == ("PSK-7004", True)
    assert files_open_in(tmp_path) == []
    Log.open(tmp_path / "db").close()


def test_a_group_that_is_refused_is_refused_as_a_whole(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 0)])
    with largest_file(20_000):
        futures = [log.append_future([part(t, t, width=3000)]) for t in range(2, 12)]
        taken = [f.exception() is None for f in futures]
    assert not all(taken)
    assert [t for t in range(2, 12) if log.entries(t)] == [t for t, ok in zip(range(2, 12), taken, strict=True) if ok]
    assert log.append([part(1, 1)]).lsn == 2 + sum(taken)
    log.close()
    log = Log.open(tmp_path)
    assert (keys(log, 1), log.head) == ([0, 1], 2 + sum(taken))
    log.close()


class Faulty:
    """A sync that fails as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.calls = threading.Semaphore(0)
        self._real = disk.datasync
        monkeypatch.setattr(segment_module, "datasync", self)

    def __call__(self, fd: int) -> None:
        self.calls.release()
        if self.on:
            raise OSError(errno.EIO, "Input/output error")
        self._real(fd)


def test_acknowledged_commits_are_written_once_more_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = Faulty(monkeypatch)
    log = Log.open(tmp_path, mode="async", async_interval_ms=60_000)
    for k in range(3):
        log.append([part(1, k)])
    faulty.on = True
    with pytest.raises(PenstockError) as error:
        log.sync()
    assert error.value.code == "PSK-7004"
    with pytest.raises(PenstockError):
        log.append([part(1, 3)])
    # The system has dropped what it could not write.
    first = log.entries(1)[0]
    with open(first.path, "r+b") as file:
        file.seek(first.offset)
        file.write(bytes(first.length))
    faulty.on = False
    assert log.append([part(1, 4)]).lsn == 4
    log.sync()
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [0, 1, 2, 4]
    log.close()


def test_a_failed_sync_is_tried_again_without_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.log.writer._RETRY_S", 0.001)
    faulty = Faulty(monkeypatch)
    faulty.on = True
    log = Log.open(tmp_path, mode="async", async_interval_ms=1)
    log.append([part(1, 0)])
    for _ in range(5):
        assert faulty.calls.acquire(timeout=30)
    faulty.on = False
    log.close()
    assert caplog.text.count("acknowledged commits are not on disk yet") == 1
    log = Log.open(tmp_path)
    assert keys(log, 1) == [0]
    log.close()


def test_a_write_that_cannot_be_taken_back_is_taken_back_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 0)])
    truncate = os.ftruncate

    def broken(fd: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", broken)
    with largest_file(log.entries(1)[0].offset + 2000):
        assert refused(log, 1) == 1
    for _ in range(2):
        with pytest.raises(PenstockError, match="Input/output error") as error:
            log.append([part(1, 1)])
        assert error.value.code == "PSK-7004"
    monkeypatch.setattr(os, "ftruncate", truncate)
    assert log.append([part(1, 2)]).lsn == 2
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [0, 2]
    log.close()


def test_what_waits_for_a_sync_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.writer._UNSYNCED_BYTES", 5000)
    faulty = Faulty(monkeypatch)
    log = Log.open(tmp_path, mode="async", async_interval_ms=60_000)
    log.append([part(1, 0, width=1000)])
    assert not faulty.calls.acquire(blocking=False)
    for k in range(5):
        log.append([part(1, k, width=1000)])
    assert faulty.calls.acquire(timeout=30)
    log.close()


SMALL = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 4 MB: a real one if this process may mount it, or else a folder in which nothing more is allocated."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = [shutil.which("mount") or "false", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            yield place
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
    else:
        refuse_beyond(SMALL, place, monkeypatch)
        yield place


def refuse_beyond(size: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, allocate = os.pwritev, os.posix_fallocate

    def need(fd: int, end: int) -> None:
        used = sum(os.stat(name).st_blocks * 512 for name in folder.rglob("*.seg"))
        if used + max(0, end - os.fstat(fd).st_blocks * 512) > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def limited_write(fd: int, buffers: list[memoryview], offset: int) -> int:
        need(fd, offset + sum(len(b) for b in buffers))
        return write(fd, buffers, offset)

    def limited_allocate(fd: int, offset: int, length: int) -> None:
        need(fd, offset + length)
        allocate(fd, offset, length)

    monkeypatch.setattr(os, "pwritev", limited_write)
    monkeypatch.setattr(os, "posix_fallocate", limited_allocate)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_small_disk_that_is_full(small_disk: Path, mode: Mode) -> None:
    log = Log.open(small_disk / "db", mode=mode, segment_bytes=256 << 10, async_interval_ms=1)
    log.append([part(2, 7)])
    errors = [log.append_future([part(1, k, width=20_000)]).exception() for k in range(400)]
    taken = [k for k, error in enumerate(errors) if error is None]
    texts = {str(e) for e in errors if e is not None}
    assert texts and all(
        "PSK-7004" in t and "No space left on device" in t and "Free some disk space" in t for t in texts
    )
    assert 100 < len(taken) < 300
    assert (keys(log, 1), keys(log, 2)) == (taken, [7])
    # Trimming makes the room for its own files, and then for thinning out what is left.
    assert log.trim({1: log.head - 20}) > 2_000_000
    assert log.trim({}) > 200_000
    log.append([part(1, 1000, width=20_000), part(2, 1000)])
    log.close()
    log = Log.open(small_disk / "db", mode=mode)
    assert (keys(log, 1), keys(log, 2)) == ([*taken[-20:], 1000], [7, 1000])
    log.close()
    assert files_open_in(small_disk) == []


@contextmanager
def unwritable_floors(*, times: int) -> Iterator[None]:
    """The disk refuses the file of floors so many times."""
    save, left = Floors.save, [times]

    def refused(floors: Floors) -> None:
        if left[0]:
            left[0] -= 1
            raise disk.unwritable(Path("floors.json"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        save(floors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Floors, "save", refused)
        yield


def in_segments(folder: Path, *, commits: int = 10, **how: Any) -> Log:
    """A log with two commits of object 1 in each segment."""
    log = Log.open(folder, segment_bytes=20_000, **how)
    for k in range(commits):
        log.append([part(1, k, width=9000)])
    return log


def test_rows_that_a_reader_has_outlive_a_trim_on_a_full_disk(tmp_path: Path) -> None:
    """Their segment was once cut: rows in it became others, and reading further in it ended the process."""
    log = in_segments(tmp_path)
    entries = log.entries(1)
    held = log.read(entries[0], SCHEMA)
    before = held.to_pylist()
    with unwritable_floors(times=2), pytest.raises(PenstockError) as error:
        log.trim({1: 6})
    assert error.value.code == "PSK-7004"
    assert held.to_pylist() == before
    with pytest.raises(PenstockError) as error:
        log.read(entries[0], SCHEMA)
    assert error.value.code == "PSK-5011"
    # A checkpoint that is made now has what is left.
    with log.pinned() as pinned:
        assert all(path.stat().st_size >= size for path, size in pinned.segments)
    log.trim({})
    assert not list((tmp_path / "log").glob("*.buried"))
    log.close()


@pytest.mark.parametrize("opens", [1, 3])
def test_a_log_that_was_trimmed_on_a_full_disk_opens_again_and_again(tmp_path: Path, opens: int) -> None:
    """What the first open learned of removed segments was once not written down, and the next one missed them."""
    log = in_segments(tmp_path / "db")
    with unwritable_floors(times=2), pytest.raises(PenstockError):
        log.trim({1: 6})
    shutil.copytree(tmp_path / "db", tmp_path / "cut")
    log.close()
    for _ in range(opens):
        # The disk is full at first.
        with unwritable_floors(times=1 if opens > 1 else 0):
            log = Log.open(tmp_path / "cut")
        assert keys(log, 1) == [6, 7, 8, 9]
        # Who begins with the first commit is told that it is gone.
        assert not log.retains(1, 0) and log.retains(1, 6) and not log.reaches_back(1, 0)
        log.close()
    assert bool(list((tmp_path / "cut" / "log").glob("*.buried"))) == (opens > 1)
    with unwritable_floors(times=0):
        Log.open(tmp_path / "cut").close()
    assert not list((tmp_path / "cut" / "log").glob("*.buried"))
    Log.open(tmp_path / "cut").close()


def test_a_full_disk_leaves_no_hole_in_a_log_whose_oldest_segments_a_checkpoint_has(tmp_path: Path) -> None:
    """Linked segments were once kept, and those after them removed: the next open had rows from before the hole."""
    log = in_segments(tmp_path / "db")
    os.link(tmp_path / "db" / "log" / "00000001.seg", tmp_path / "linked.seg")
    size = (tmp_path / "linked.seg").stat().st_size
    with unwritable_floors(times=2), pytest.raises(PenstockError):
        log.trim({1: 6})
    shutil.copytree(tmp_path / "db", tmp_path / "cut")
    log.close()
    assert (tmp_path / "linked.seg").stat().st_size == size
    log = Log.open(tmp_path / "cut")
    assert keys(log, 1) == [6, 7, 8, 9]
    log.close()


def test_a_segment_that_comes_back_after_a_power_cut_is_still_given_up(tmp_path: Path) -> None:
    log = in_segments(tmp_path / "db")
    shutil.copytree(tmp_path / "db", tmp_path / "before")
    with unwritable_floors(times=2), pytest.raises(PenstockError):
        log.trim({1: 6})
    shutil.copytree(tmp_path / "db", tmp_path / "cut")
    log.close()
    shutil.copyfile(tmp_path / "before" / "log" / "00000001.seg", tmp_path / "cut" / "log" / "00000001.seg")
    for _ in range(2):
        log = Log.open(tmp_path / "cut")
        assert keys(log, 1) == [6, 7, 8, 9]
        log.close()


def test_a_log_whose_segments_an_earlier_version_has_cut_opens_again_and_again(tmp_path: Path) -> None:
    in_segments(tmp_path).close()
    (tmp_path / "log" / "00000001.seg").write_bytes(b"PSKx")
    for _ in range(2):
        log = Log.open(tmp_path)
        assert keys(log, 1) == [2, 3, 4, 5, 6, 7, 8, 9]
        log.close()
