"""Ctrl-C and SIGTERM: where they throw, where they are only noted, and that they never do both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.cli.interrupts import INTERRUPTED, TERMINATED, Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {s: signal.getsignal(s) for s in SIGNALS}
    made = Interrupts()
    made.install()
    yield made
    for s, handler in before.items():
        signal.signal(s, handler)


def send(signum: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), signum)


def test_the_first_is_thrown_and_cleaning_up_is_left_alone(interrupts: Interrupts) -> None:
    cleaned = False

    def work() -> None:
        nonlocal cleaned
        try:
            send()
        finally:
            send()
            cleaned = True

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned


def test_one_that_waits_is_told_and_nothing_is_thrown(interrupts: Interrupts) -> None:
    with interrupts.awaited() as asked:
        threading.Timer(0.05, send).start()
        assert asked.wait(10)
    with interrupts.awaited() as asked:
        assert not asked.wait(0)
    with pytest.raises(KeyboardInterrupt):
        send()


def test_a_request_to_end_ends_a_wait_and_cancels_work(interrupts: Interrupts) -> None:
    with interrupts.awaited() as asked:
        send(signal.SIGTERM)
        assert asked.is_set()
    assert interrupts.terminated
    with pytest.raises(SystemExit) as ended, interrupts.cancellable():
        send(signal.SIGHUP)
    assert ended.value.code == TERMINATED


def test_one_that_comes_between_two_blocks_strikes_in_the_second(interrupts: Interrupts) -> None:
    with interrupts.cancellable():
        pass
    send()
    with pytest.raises(KeyboardInterrupt), interrupts.cancellable():
        pytest.fail("the block was entered")
    with interrupts.cancellable():
        pass


def test_closing_survives_one_and_gives_in_to_two(capfd: pytest.CaptureFixture[str], interrupts: Interrupts) -> None:
    with interrupts.closing():
        send()
    assert capfd.readouterr().err == "\nClosing; press Ctrl-C again to quit at once.\n"
    script = """
import os, signal
from penstock.cli.interrupts import interrupts
interrupts.install()
with interrupts.closing():
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("not here", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (INTERRUPTED, "still here\n")
