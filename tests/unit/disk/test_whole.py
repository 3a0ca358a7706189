from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.effort import times
from tests.unit.disk.filling import largest_file

from penstock.disk import link, make_folder, sync_file, unwritable, write_durably
from penstock.errors import PenstockError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_content_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a longer old content")
    path.chmod(0o644)
    write_durably(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)
    write_durably(path, lambda out: out.write(b"written by a function"))
    assert path.read_bytes() == b"written by a function"
    assert list(tmp_path.iterdir()) == [path]


def test_a_function_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_durably(path, b"old")

    def half(out: BinaryIO) -> None:
        out.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_durably(path, half)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_crash_left_beside_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    (tmp_path / "a.tmp").write_bytes(b"left by a crash, and longer than the content")
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_everything_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(fd: int) -> None:
        steps.append("sync " + Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        sync(fd)

    def note_replace(a: Path, b: Path) -> None:
        steps.append(f"{a.name} -> {b.name}")
        replace(a, b)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_durably(tmp_path / "a", b"x")
    assert steps == ["sync a.tmp", "a.tmp -> a", f"sync {tmp_path.name}"]


def test_a_file_that_cannot_grow_is_refused_with_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_durably(path, b"old")
    with (
        largest_file(1000),
        pytest.raises(PenstockError, match=f"{path} could not be written: File too large") as error,
    ):
        write_durably(path, bytes(5000))
    assert error.value.code == "PSK-7004" and "Free some disk space" in str(error.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_to_make_room(number: int) -> None:
    error = unwritable(Path("/db/a"), OSError(number, os.strerror(number)))
    assert str(error) == (
        f"PSK-7004: /db/a could not be written: {os.strerror(number)}.\n"
        "Hint: Free some disk space and try again. The failed change was rolled back."
    )


def test_any_other_reason_has_no_such_hint() -> None:
    assert str(unwritable(Path("/db/a"), OSError(errno.EIO, "Input/output error"))) == (
        "PSK-7004: /db/a could not be written: Input/output error."
    )


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    for action in (lambda p: write_durably(p, b""), sync_file):
        with pytest.raises(PenstockError, match="nowhere/a could not be written: No such file") as error:
            action(tmp_path / "nowhere" / "a")
        assert error.value.code == "PSK-7004"


def test_folders_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert [mode(p) for p in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")] == [0o755, 0o700, 0o700]


@pytest.mark.parametrize("name", ["a/b", "x" * 300, "n\0l"])
def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(PenstockError) as error:
        make_folder(tmp_path / name)
    assert error.value.code == "PSK-7004"


KILLED = """
import sys
from pathlib import Path
from penstock.disk import write_durably
n = 0
while True:
    write_durably(Path(sys.argv[1]), (b"%d " % n) * 5000)
    sys.stdout.write(f"{n}\\n"); sys.stdout.flush()
    n += 1
"""


def test_a_kill_leaves_one_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for lines in (1, 30, 7)[: times(3, quick=2)]:
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        ) as process:
            assert process.stdout is not None
            written = [int(process.stdout.readline()) for _ in range(lines)]
            process.kill()
            written += [int(n) for n in process.stdout.read().split()]
        words = path.read_bytes().split()
        assert len(words) == 5000 and len(set(words)) == 1
        assert int(words[0]) in (written[-1], written[-1] + 1)


def test_what_cannot_be_linked_is_copied_durably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    (tmp_path / "a").write_bytes(b"data")
    link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"data" and synced == [str(tmp_path / "b")]
