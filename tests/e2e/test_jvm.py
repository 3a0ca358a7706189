"""The JVM is killed, runs out of memory, is stopped or never starts: every call says so, and the next one starts a new JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.dying import JVMS

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
ROOT = Path(__file__).parents[2]
# several JVMs on a loaded machine
TIMEOUT_S = 800
NOTICED_S = 2.0


def scenario(*arguments: str, temporary: Path, says: str = "") -> dict[str, Any]:
    """Runs one scenario in a process of its own. It may say one thing on stderr, `says`, with a hint, and leaves nothing in the temporary folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.dying", *arguments],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env={**ENVIRONMENT, "TMPDIR": str(temporary)}, check=False,
    )  # fmt: skip
    # Whoever closes the database first keeps it from being said.
    assert all(says and line.startswith((says, "Hint: ")) for line in done.stderr.splitlines()), done.stderr
    assert done.returncode == 0
    ended = time.time()
    assert [p.name for p in temporary.iterdir() if p.name.startswith("penstock-")] == []
    return {**json.loads(done.stdout.splitlines()[-1]), "ended": ended}


def test_calls_that_are_under_way_when_the_jvm_is_killed_end(tmp_path: Path) -> None:
    out = scenario("under_way", temporary=tmp_path)
    assert {name: code for name, (code, _) in out["ends"].items()} == dict.fromkeys(
        ("select", "direct", "collected", "stuck"), "PSK-7005"
    )
    assert max(s for _, s in out["ends"].values()) < NOTICED_S
    assert out["told_s"] < NOTICED_S
    assert out["told"].startswith("PSK-7005: Spark's JVM exited: it was killed by SIGKILL")
    assert "db.start()" in out["told"] and "spark.log" in out["told"]
    assert [code for code, _ in out["after"]] == ["PSK-7005"] * 4 + ["nothing"]
    assert max(s for _, s in out["after"]) < 0.5
    assert out["deaf"] == 0


def test_a_process_starts_one_jvm_after_the_other(tmp_path: Path) -> None:
    out = scenario("restarts", temporary=tmp_path)
    last = 2 + JVMS
    assert out["rows"] == [*range(3, last + 1), last + 3, 7]
    assert out["old"] == ["PSK-7005"] * (JVMS - 1)
    threads, sockets, files = zip(*out["counts"], strict=True)
    assert len(set(threads)) == 1, threads
    assert len(set(sockets)) == 1, sockets
    assert len(set(files)) == 1, files
    assert out["path"] == []


def test_results_and_inputs_larger_than_the_heap(tmp_path: Path) -> None:
    out = scenario("memory", temporary=tmp_path)
    assert out["bytes"] > 1_000_000_000
    assert (out["rows"], out["last"]) == (1_000_000, [999_999, "nn"])
    assert out["summed"] == [1_000_000, 499_999_500_000, 1000]
    assert out["refused"][0] == "PSK-7009"
    assert out["wide"] >= 300_000_000
    assert out["left"] == 0
    assert out["died"].startswith("PSK-7005: Spark's JVM exited: java.lang.OutOfMemoryError: Java heap space.")
    assert "spark.heap" in out["died"]
    assert out["again"] == [{"a": 1}]


def test_the_jvm_listens_to_nobody_else(tmp_path: Path) -> None:
    out = scenario("ports", temporary=tmp_path)
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert out["addresses"] and set(out["addresses"]) <= loopback
    assert "currentTimeMillis" not in out["answer"] and not out["answer"].startswith("!y")
    assert out["authenticate"] == "true"
    assert "spark.sql.extensions" not in out["command"]
    assert out["mode"] == 0o700


def test_a_start_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    out = scenario("starting", temporary=tmp_path)
    assert [code for code, _ in out["killed"]] == ["PSK-0007"]
    assert out["phase"] == "absent"
    assert out["sums"] == [[[2]], [[2]]]
    assert "its Spark context was stopped" in out["stopped"]
    assert out["again"] == [{"a": 1}]


def test_a_database_whose_jvm_was_killed_is_closed_and_opened_again(tmp_path: Path) -> None:
    out = scenario("reopened", str(tmp_path / "data"), temporary=tmp_path, says="PSK-7005: ")
    assert (out["dropped"], out["faulted"]) == ("nothing", "Faulted")
    assert {code for code, _ in out["dead"]} == {"PSK-7005"}
    assert max(s for _, s in out["dead"]) < NOTICED_S
    assert out["states"] == {"s": "ready", "g": "failed", "t": "ready"}
    assert out["revived"] == [["a", 1], ["b", 22]]
    assert out["closed_s"] < 3
    assert (out["rows"], out["t"]) == ([["a", 11], ["b", 22]], [])


@pytest.mark.parametrize("how", ["alive", "dead", "stuck"])
def test_a_process_ends_with_its_jvm_and_without_its_folder(tmp_path: Path, how: str) -> None:
    temporary = tmp_path / "with a space"
    temporary.mkdir()
    out = scenario("exiting", how, temporary=temporary)
    assert out["ended"] - out["at"] < 4
    assert not Path(out["scratch"]).exists()
    assert not Path(f"/proc/{out['jvm']}").exists()


@contextmanager
def living(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.dying", "waiting"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**ENVIRONMENT, "TMPDIR": str(temporary)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    with living(tmp_path) as (_, left):
        assert Path(left["scratch"]).is_dir()
    with living(tmp_path) as (_, other):
        deadline = time.monotonic() + 60
        while Path(f"/proc/{left['jvm']}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        done = subprocess.run(
            [sys.executable, "-c", "from penstock.spark.scratch import sweep; sweep()"],
            env={**ENVIRONMENT, "TMPDIR": str(tmp_path)}, check=True,
        )  # fmt: skip
        assert done.returncode == 0
        assert not Path(left["scratch"]).exists()
        assert Path(other["scratch"]).is_dir()
