"""The checks of the doctor that need no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.doctor import machine, software


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.12" 2024-07-16', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_java_major(text: str, major: int | None) -> None:
    assert software.java_major(text) == major


@pytest.mark.parametrize(("text", "numbers"), [("4.3.0", (4, 3, 0)), ("4.2.1.dev3", (4, 2, 1)), ("x", ())])
def test_version_tuple(text: str, numbers: tuple[int, ...]) -> None:
    assert software.version_tuple(text) == numbers


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "java"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    tool.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert software.find_tool("java") == str(tool)
    check = software.check_java()
    assert check.ok is False and check.found.startswith("11 ") and "JDK 17" in check.advice


def test_missing_java_is_a_failure_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = software.check_java()
    assert check.ok is False and check.found == "not found" and check.advice


def test_javac_is_only_needed_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert software.check_javac(needed=False).ok is None
    assert software.check_javac(needed=True).ok is False


def test_a_folder_that_is_not_there_yet_is_checked_where_it_will_be(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert machine.existing(folder) == tmp_path
    assert machine.check_sync(folder).ok and machine.check_disk(folder).ok
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert machine.check_sync(tmp_path / "file" / "data").ok is False
