from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from tests.effort import EFFORT
from tests.unit.runtime.interrupting import STRIKES
from tests.unit.runtime.storing import follow, in_contents, in_log, make, opened, part, read, summed, together
from tests.unit.runtime.striking import at_every_line

from penstock.catalog.objects import Kind
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.writes import TableWriter

ROOT = Path(__file__).parents[3]


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_end_of_the_block() -> None:
    done = []

    def block() -> None:
        with uninterrupted():
            press()
            done.append(1)
            press()
            done.append(2)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        press()


def test_a_block_that_is_not_struck_changes_nothing() -> None:
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ValueError, match="own"), uninterrupted():
        raise ValueError("own")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_a_struck_block_is_the_context_of_the_interrupt() -> None:
    def block() -> None:
        with uninterrupted():
            press()
            raise ValueError("own")

    with pytest.raises(KeyboardInterrupt) as raised:
        block()
    assert isinstance(raised.value.__context__, ValueError)


def test_nested_blocks_wait_for_the_outermost() -> None:
    done = []

    def blocks() -> None:
        with uninterrupted():
            with uninterrupted():
                press()
                done.append(1)
            done.append(2)
            with uninterrupted():
                done.append(3)
            done.append(4)

    with pytest.raises(KeyboardInterrupt):
        blocks()
    assert done == [1, 2, 3, 4]


def test_a_handler_of_the_program_is_called_once_at_the_end() -> None:
    calls: list[tuple[int, FrameType | None]] = []

    def own(number: int, frame: FrameType | None) -> None:
        calls.append((number, frame))

    signal.signal(signal.SIGINT, own)
    with uninterrupted():
        press()
        press()
        assert calls == []
    assert [number for number, _ in calls] == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_a_program_that_ignores_ctrl_c_goes_on() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        press()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def child(text: str) -> subprocess.CompletedProcess[str]:
    code = f"import signal\nfrom penstock.runtime.storage.interrupts import uninterrupted\n{text}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_a_program_that_ends_by_ctrl_c_ends_after_the_block() -> None:
    ended = child(
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "with uninterrupted():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    print('whole', flush=True)\n"
        "print('not reached', flush=True)\n"
    )
    assert (ended.stdout, ended.returncode) == ("whole\n", -signal.SIGINT)


def test_other_threads_do_not_touch_the_handler() -> None:
    seen: list[object] = []

    def run() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    together([run, run])
    assert seen == [signal.default_int_handler] * 2


def unharmed(commit: Callable[[], object]) -> None:
    """A commit by another thread goes through: no lock was left behind."""
    other = threading.Thread(target=commit, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive(), "a lock was left behind"


def test_a_commit_that_is_struck_at_any_line_is_whole_or_not_there(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        source, stream = make(storage, "s", Kind.SOURCE), make(storage, "v", Kind.STREAM)
        told = follow(storage, stream)
        lines = itertools.count(1)

        def work() -> None:
            n = next(lines)
            storage.commit([part(stream, (n, "x", 1)), part(source, (n, "x"))])

        outcomes = []
        step = 1 if EFFORT > 1 else 3
        for interrupted in at_every_line(work, step):
            outcomes.append(interrupted)
            unharmed(lambda: storage.commit([part(stream, (0, "y", 1)), part(source, (0, "y"))]))
            assert storage.log.epoch(source.id) == storage.log.epoch(stream.id)
        # Every line that was tried was struck, but for the one after the last.
        assert len(outcomes) > 50 // step and outcomes == [True] * (len(outcomes) - 1) + [False]
        rows = in_log(storage, source)
        assert rows == in_log(storage, stream) == summed(r for _, r in read(told, storage.log.head))
        happened = {k for k, _ in rows} - {0}
        assert happened == set(range(min(happened), len(outcomes) + 1)) and min(happened) > 1


def test_a_table_write_that_is_struck_at_any_line_is_whole_or_not_there(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table, source = make(storage, "t"), make(storage, "s", Kind.SOURCE)
        writer = TableWriter(storage)
        numbers = itertools.count()

        def work() -> None:
            row = {"k": next(numbers) % 3, "v": "x"}
            feeds = [storage.feed(o) for o in (table, source)]
            writer.commit([(f.info, "insert", f.part([row])) for f in feeds])

        for _ in at_every_line(work, step=max(1, 40 // EFFORT)):
            unharmed(lambda: writer.insert("s", [{"k": 9, "v": "y"}]))
            unharmed(lambda: writer.preview([(table, "delete", part(table))]))
        assert not storage.damage
        assert in_log(storage, table) == in_contents(storage, table)
        assert set(in_contents(storage, table)) == {row for row in in_log(storage, source) if row[1] == "x"}


def test_ctrl_c_at_random_moments_leaves_log_contents_and_model_equal(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.runtime.interrupting", str(tmp_path), "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.returncode == 0, ended.stderr
    struck, carried_out, not_carried_out = (int(n) for n in ended.stdout.split())
    assert struck >= STRIKES and carried_out and not_carried_out
