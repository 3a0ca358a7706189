"""The remembered command of Spark's JVM: the same for the same configuration, with the scratch folder of each process, and dropped if it does not work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.launch import Command, Launch

GIVEN = {"PATH": os.environ["PATH"], "HOME": "home"}
CONF = {"spark.master": "local[2]", "spark.driver.memory": "1g"}

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the system does not show commands")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("penstock.spark.launch.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in place of the JVM, which names its scratch folder."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    environment = {**GIVEN, "ADDED": f"{tmp_path}/one/x"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, f"{tmp_path}/one/file"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def launch(tmp_path: Path, scratch: str, conf: dict[str, str] | None = None, **variables: str) -> Launch:
    submit = Command((str(tmp_path / "home" / "bin" / "spark-submit"), str(tmp_path / scratch)), variables)
    return Launch(submit, {**(conf or CONF), "own": str(tmp_path / scratch)}, tmp_path / scratch)


def test_remembered_with_the_scratch_folder_of_each_process(
    tmp_path: Path, cache: Path, running: subprocess.Popen[bytes]
) -> None:
    first = launch(tmp_path, "one", **GIVEN)
    assert first.command().words[0].endswith("spark-submit")
    first.keep(running.pid)
    again = launch(tmp_path, "two", **GIVEN).command()
    assert again.words[0] == sys.executable
    assert again.words[-1] == f"{tmp_path}/two/file"
    assert again.variables == {**GIVEN, "ADDED": f"{tmp_path}/two/x"}
    assert [oct(file.stat().st_mode)[-3:] for file in cache.iterdir()] == ["600"]


def test_only_for_the_same_configuration(tmp_path: Path, running: subprocess.Popen[bytes]) -> None:
    launch(tmp_path, "one").keep(running.pid)
    others = (
        launch(tmp_path, "one", {**CONF, "spark.driver.memory": "2g"}),
        launch(tmp_path, "one", JAVA_HOME="elsewhere"),
        launch(tmp_path, "one", SPARK_CONF_DIR="conf"),
    )
    for other in others:
        assert other.command().words[0].endswith("spark-submit")
    assert launch(tmp_path, "one", IRRELEVANT="x").command().words[0] == sys.executable


def test_not_with_a_configuration_folder_nor_on_a_cluster(tmp_path: Path, running: subprocess.Popen[bytes]) -> None:
    cluster = {**CONF, "spark.master": "spark://host"}
    launch(tmp_path, "one", cluster).keep(running.pid)
    assert launch(tmp_path, "one", cluster).command().words[0].endswith("spark-submit")
    launch(tmp_path, "one").keep(running.pid)
    (tmp_path / "home" / "conf").mkdir(parents=True)
    assert launch(tmp_path, "one").command().words[0].endswith("spark-submit")


def test_dropped_if_it_does_not_work_or_cannot_be_read(
    tmp_path: Path, cache: Path, running: subprocess.Popen[bytes]
) -> None:
    launch(tmp_path, "one").keep(running.pid)
    second = launch(tmp_path, "one")
    second.command()
    second.forget()
    assert launch(tmp_path, "one").command().words[0].endswith("spark-submit")
    launch(tmp_path, "one").keep(running.pid)
    for file in cache.iterdir():
        file.write_text('{"words": 1')
    assert launch(tmp_path, "one").command().words[0].endswith("spark-submit")
