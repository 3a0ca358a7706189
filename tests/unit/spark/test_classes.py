"""The archive of classes: written once, found again, never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from penstock.spark.classes import ClassArchive


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("penstock.spark.classes.cache_folder", lambda: tmp_path / "cache")
    jar = tmp_path / "kernel.jar"
    jar.write_bytes(b"kernel")
    return jar


def write(path: str) -> None:
    Path(path).write_bytes(b"classes")


def test_written_once_and_used_from_then_on(jar: Path) -> None:
    first = ClassArchive(jar)
    assert first.options == "-XX:+RecordDynamicDumpInfo"
    first.keep(write)
    first.keep(lambda _: pytest.fail("it is there already"))
    assert first.path.read_bytes() == b"classes"
    assert ClassArchive(jar).options == f'"-XX:SharedArchiveFile={first.path}"'
    assert [f.name for f in first.path.parent.iterdir()] == [first.path.name]


def test_another_kernel_has_another_archive(jar: Path) -> None:
    ClassArchive(jar).keep(write)
    jar.write_bytes(b"another kernel")
    assert ClassArchive(jar).options == "-XX:+RecordDynamicDumpInfo"


def test_half_an_archive_is_never_left(jar: Path) -> None:
    def fails(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("no space")

    archive = ClassArchive(jar)
    archive.keep(fails)
    assert not list(archive.path.parent.iterdir())


def test_what_nobody_uses_any_more_goes(jar: Path) -> None:
    archive = ClassArchive(jar)
    old = archive.path.with_name("classes-0.jsa")
    old.parent.mkdir()
    old.write_bytes(b"old")
    month_ago = time.time() - 31 * 24 * 3600
    os.utime(old, (month_ago, month_ago))
    archive.keep(write)
    assert not old.exists()
    assert archive.path.exists()
