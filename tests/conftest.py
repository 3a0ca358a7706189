"""Fixtures and settings of all tiers."""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest
from tests.effort import times

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

# A shared machine may be slow at any moment; that is not a failure of the property under test.
hypothesis.settings.register_profile("penstock", deadline=None, max_examples=times(30, quick=20))
hypothesis.settings.load_profile("penstock")

# Settings of whoever runs the tests do not affect them.
for _name in [n for n in os.environ if n.startswith("PENSTOCK__")]:
    del os.environ[_name]

# A shell that starts the tests in the background has them ignore Ctrl-C, and some of them press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


_LOOK_S = 60
_watched = -math.inf
_output = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "stuck_s", "after so long a test says where every thread stands, and ends the run; 0: never", default="1500"
    )


def pytest_configure() -> None:
    global _output
    # The standard error of the run: while there is a test, it is captured.
    _output = os.dup(2)


def pytest_unconfigure() -> None:
    # Python frees at the end what is not frozen; DuckDB lists what was not freed.
    gc.unfreeze()
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _watched
    # pytest has such an option, faulthandler_timeout, which starts and ends a thread for every test.
    stuck_s = float(item.config.getini("stuck_s"))
    if stuck_s and time.monotonic() - _watched >= _LOOK_S:
        _watched = time.monotonic()
        faulthandler.dump_traceback_later(stuck_s + _LOOK_S, exit=True, file=_output)


# Nothing that is imported and collected is garbage.
gc.disable()


def pytest_collection_finish() -> None:
    # All of it stays until the end; the garbage collector need not look through it again and again.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    # The first look finds all that there is; pytest looks ten times more.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a run; each test takes names of its own."""
    # Few processes need it, and every one imports this file.
    from tests.postgres import PostgresServer

    server = PostgresServer()
    try:
        yield server
    finally:
        server.remove()
