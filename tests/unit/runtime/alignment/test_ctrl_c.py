"""Ctrl-C while a source is held."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tests.unit.runtime.alignment.sources import (
    Waiting,
    apart,
    put,
    refused,
    shown,
    times,
)
from tests.unit.runtime.engines import Database
from tests.unit.runtime.storing import eventually, together
from tests.unit.runtime.striking import at_every_line

from penstock.api.source import SourceHandle


@pytest.fixture(autouse=True)
def _attentive(_patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python does not wake the main thread for a signal that arrives just before it begins to wait: only its next look finds it."""
    monkeypatch.setattr("penstock.runtime.storage.alignment._LOOK_S", 0.1)


def test_ctrl_c_ends_the_wait(db: Database) -> None:
    apart(db)
    head = db.engine.log.head

    def press() -> None:
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
        os.kill(os.getpid(), signal.SIGINT)

    presser = Waiting(press)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        put(db, "a", 101)
    presser.done()
    assert time.monotonic() - began < 10
    assert db.engine.log.head == head and shown(db, "a").state == "ready"
    put(db, "b", 100)
    put(db, "a", 102)
    assert times(db, "a") == [40, 60, 100, 102]


def test_a_program_that_only_notes_ctrl_c_waits_on(db: Database) -> None:
    apart(db)
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.set())

    def press() -> None:
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
        os.kill(os.getpid(), signal.SIGINT)
        assert pressed.wait(10)
        put(db, "b", 100)

    try:
        presser = Waiting(press)
        put(db, "a", 101)
        presser.done()
    finally:
        signal.signal(signal.SIGINT, before)
    assert times(db, "a") == [40, 60, 100, 101]


def test_a_wait_that_is_struck_at_any_line_leaves_nothing_behind(db: Database) -> None:
    apart(db)
    db.run("SET engine.drift_timeout_ms = 1")
    db.engine.ticker.stop()
    head = db.engine.log.head

    def work() -> None:
        refused(lambda: put(db, "a", 101))

    outcomes = []
    for interrupted in at_every_line(work, step=3):
        outcomes.append(interrupted)
        assert db.engine.log.head == head and shown(db, "a").state == "ready"
    assert len(outcomes) > 30 and outcomes[-1] is False and all(outcomes[:-1])
    put(db, "b", 100)
    together([lambda: put(db, "a", 101)])


def test_a_writer_keeps_the_rows_of_a_wait_that_was_struck(db: Database) -> None:
    apart(db)
    with SourceHandle(db.engine, db.engine.writer.target("a")).writer(max_delay=1000) as writer:
        writer.write((0, 101))

        def press() -> None:
            eventually(lambda: shown(db, "a").state == "paused", "a is not held")
            os.kill(os.getpid(), signal.SIGINT)

        presser = Waiting(press)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        presser.done()
        put(db, "b", 100)
    assert times(db, "a") == [40, 60, 100, 101]
