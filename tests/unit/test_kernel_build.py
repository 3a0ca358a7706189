"""kernel/build.py, with a javac that only pretends."""

from __future__ import annotations

import runpy
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KERNEL = runpy.run_path(str(Path(__file__).parents[2] / "kernel" / "build.py"))

# Puts one class where -d says, and a line into `calls` for every compilation.
COMPILES = """
if [ "$1" = -version ]; then echo "javac {version}.0.1"; exit; fi
folder=$(sed -n '/^"-d"$/{{n;p;}}' "${{1#@}}" | tr -d '"')
/bin/mkdir -p "$folder/dev" && echo bytes > "$folder/dev/A.class" && echo called >> {calls}
exit {status}
"""


class Bench:
    """Sources, a jar and a pretended javac in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sources = folder / "src"
        self.jar = folder / "out" / "kernel.jar"
        self.calls = folder / "calls"
        self.bin = folder / "bin"
        (self.sources / "META-INF").mkdir(parents=True)
        (self.sources / "A.java").write_text("class A {}")
        (self.sources / "META-INF" / "notes").write_text("text")
        self.bin.mkdir()
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        self.javac()

    def javac(self, version: int = 17, status: int = 0) -> None:
        script = COMPILES.format(version=version, calls=self.calls, status=status)
        (self.bin / "javac").write_text(f"#!/bin/sh{script}")
        (self.bin / "javac").chmod(0o755)

    def build(self, **options: Any) -> int:
        """Builds, and counts the compilations so far."""
        assert KERNEL["build"](self.sources, self.jar, **options) == self.jar
        return len(self.calls.read_text().splitlines())

    def refusal(self) -> str:
        with pytest.raises(KERNEL["BuildError"]) as caught:
            KERNEL["build"](self.sources, self.jar)
        return str(caught.value)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_the_jar_has_classes_and_resources_and_is_reproducible(bench: Bench) -> None:
    bench.build()
    first = bench.jar.read_bytes()
    with zipfile.ZipFile(bench.jar) as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", "META-INF/notes", "dev/A.class"]
    bench.build(force=True)
    assert bench.jar.read_bytes() == first
    assert list(bench.jar.parent.iterdir()) == [bench.jar]


@pytest.mark.parametrize(
    ("change", "compilations"),
    [
        (lambda b: None, 1),
        (lambda b: (b.sources / "A.java").write_text("class A { int x; }"), 2),
        (lambda b: (b.sources / "B.java").write_text("class B {}"), 2),
        (lambda b: (b.sources / "META-INF" / "notes").rename(b.sources / "notes"), 2),
        (lambda b: b.jar.write_bytes(b"not a jar"), 2),
        (lambda b: b.jar.unlink(), 2),
    ],
)
def test_it_compiles_only_what_has_changed(bench: Bench, change: Callable[[Bench], object], compilations: int) -> None:
    assert bench.build() == 1
    change(bench)
    assert bench.build() == compilations
    assert bench.build() == compilations


def test_a_failed_compilation_leaves_the_old_jar(bench: Bench) -> None:
    bench.build()
    before = bench.jar.read_bytes()
    (bench.sources / "A.java").write_text("class")
    bench.javac(status=1)
    assert "javac refused" in bench.refusal()
    assert bench.jar.read_bytes() == before


def test_without_javac_it_says_what_to_install(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.bin / "javac").unlink()
    monkeypatch.setenv("PATH", str(bench.bin))
    message = bench.refusal()
    assert "there is none on this machine" in message
    assert "apt install openjdk-17-jdk-headless" in message


def test_an_old_javac_is_refused(bench: Bench) -> None:
    bench.javac(version=11)
    assert "is of Java 11" in bench.refusal()


def test_java_home_goes_before_path(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "jdk"
    home.mkdir()
    (bench.bin).rename(home / "bin")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert KERNEL["find_javac"]() == str(home / "bin" / "javac")


def test_no_sources_are_refused(bench: Bench) -> None:
    (bench.sources / "A.java").unlink()
    assert "no Java sources" in bench.refusal()
