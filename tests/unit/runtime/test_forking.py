"""A forked child, as of a program with a pool of processes, leaves the database of its parent alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.runtime.engines import database

from penstock.disk import FolderLock
from penstock.errors import PenstockError
from penstock.log import Log


def in_child(work: Callable[[], object]) -> int:
    """Runs it in a forked child; its exit code."""
    with warnings.catch_warnings():
        # Later versions of Python warn of threads, which is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(20)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_closes_the_database_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once cut the log to where it ended when the child was forked: commits that the parent had acknowledged since were lost."""
    with database(tmp_path / "db", monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k))")
        db.run("CREATE MATERIALIZED VIEW w AS SELECT k FROM t")
        db.engine.start()
        db.insert("t", (1,))
        begun, more = os.pipe()

        def child() -> None:
            os.read(begun, 1)
            for call in (
                db.engine.check_open,
                db.engine.start,
                db.engine.stop,
                lambda: db.insert("t", (9,)),
                lambda: db.run("CREATE TABLE u (k BIGINT)"),
                lambda: db.engine.flush(1),
            ):
                with pytest.raises(PenstockError, match="forked") as refused:
                    call()
                assert refused.value.code == "PSK-0005"
            db.engine.close()

        def commit() -> None:
            db.insert("t", (2,))
            os.write(more, b"x")

        commit()
        assert in_child(child) == 0
        db.insert("t", (3,))
        assert sorted(db.rows("t")) == sorted(db.rows("w")) == [(1,), (2,), (3,)]
    with database(tmp_path / "db", monkeypatch) as db:
        db.engine.start()
        assert sorted(db.rows("t")) == sorted(db.rows("w")) == [(1,), (2,), (3,)]


def test_a_log_that_a_child_closes_is_as_it_was(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    size = log.entries(1) == [] and (tmp_path / "log" / "00000001.seg").stat().st_size
    # What the parent writes meanwhile.
    with (tmp_path / "log" / "00000001.seg").open("ab") as segment:
        segment.write(b"x" * 100)

    def child() -> None:
        with pytest.raises(PenstockError, match="forked"):
            log.sync()
        log.close()

    assert in_child(child) == 0
    assert (tmp_path / "log" / "00000001.seg").stat().st_size == size + 100
    log.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.disk import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
if not os.fork():
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""


def test_a_child_that_outlives_its_parent_does_not_keep_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"forked\n"
        with pytest.raises(PenstockError, match=f"in use by process {parent.pid}"):
            FolderLock(tmp_path).acquire()
        parent.kill()
        parent.wait()
        lock = FolderLock(tmp_path)
        lock.acquire()
        lock.release()
