from __future__ import annotations

import threading

import pytest

from penstock.errors import PenstockError
from penstock.serve.worker import Worker

SOON_S = 20.0


def test_calls_run_in_order_on_one_thread_which_ends() -> None:
    worker = Worker("penstock-test")
    seen: list[tuple[int, str]] = []
    outcomes = [worker.submit(lambda i=i: seen.append((i, threading.current_thread().name))) for i in range(20)]  # type: ignore[misc]
    assert worker.run(lambda: 7) == 7
    assert seen == [(i, "penstock-test") for i in range(20)]
    assert [o.result() for o in outcomes] == [None] * 20
    assert worker.close(SOON_S)
    assert worker.close(SOON_S)
    assert "penstock-test" not in [t.name for t in threading.enumerate()]
    with pytest.raises(PenstockError, match="PSK-0004"):
        worker.run(lambda: 7)


def test_an_error_comes_out_and_the_next_call_runs() -> None:
    worker = Worker("penstock-test")
    for error in (ValueError, KeyboardInterrupt, SystemExit):

        def broken(error: type[BaseException] = error) -> None:
            raise error

        with pytest.raises(error):
            worker.run(broken)
    assert worker.run(lambda: 7) == 7
    worker.close(SOON_S)


def test_what_was_handed_over_is_done_before_the_end() -> None:
    worker = Worker("penstock-test")
    go, done = threading.Event(), threading.Event()
    worker.submit(lambda: go.wait(SOON_S))
    worker.submit(done.set)
    assert not worker.close(0)
    go.set()
    assert worker.close(SOON_S)
    assert done.is_set()


def test_an_error_in_a_call_that_was_left_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("penstock-test")
    worker.start()
    worker.leave(lambda: 1 // 0)
    assert worker.run(lambda: 7) == 7
    worker.close(SOON_S)
    assert "ZeroDivisionError" in caplog.text
