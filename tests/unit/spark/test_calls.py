"""Calls that can be left, without a JVM behind them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock.spark.calls import drop_interrupted, interruptible


def test_a_call_that_is_left_is_abandoned() -> None:
    running, abandoned, ended = threading.Event(), threading.Event(), threading.Event()
    times = 0

    def call() -> None:
        running.set()
        abandoned.wait(10)
        ended.set()

    def abandon() -> None:
        # as if the first came before there was anything to abandon
        nonlocal times
        times += 1
        if times > 1:
            abandoned.set()

    def interrupt() -> None:
        running.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(call, abandon)
    assert ended.wait(10) and times == 2


def test_an_answer_or_an_error_of_the_call_abandons_nothing() -> None:
    abandoned = threading.Event()
    assert interruptible(lambda: 42, abandoned.set) == 42
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0, abandoned.set)
    assert not abandoned.is_set()


class Connection:
    closed = False

    def close(self) -> None:
        self.closed = True


class Client:
    """The part of a gateway's client that calls go through."""

    def __init__(self, raised: BaseException | None) -> None:
        self.raised = raised
        self.connection = Connection()

    def send_command(self, command: str, retry: bool = True) -> str:
        if self.raised is not None:
            raise self.raised
        return f"!{command}"

    def get_thread_connection(self) -> Connection:
        return self.connection


@pytest.mark.parametrize(
    ("raised", "closed"), [(None, False), (OSError("gone"), False), (KeyboardInterrupt(), True), (SystemExit(), True)]
)
def test_a_call_that_is_struck_takes_its_connection_with_it(raised: BaseException | None, closed: bool) -> None:
    client = Client(raised)
    drop_interrupted(client)
    if raised is None:
        assert client.send_command("c", retry=False) == "!c"
    else:
        with pytest.raises(type(raised)):
            client.send_command("c")
    assert client.connection.closed is closed
