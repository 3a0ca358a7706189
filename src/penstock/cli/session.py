"""Opening a database for a command: progress while it starts, a clean end, and a Ctrl-C that hits only the command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich.text import Text

from penstock.cli import console

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from penstock.api import Database


def status(text: str) -> AbstractContextManager[object]:
    """A spinner on stderr if it is a terminal, nothing otherwise."""
    screen = console.err()
    return screen.status(Text(text)) if screen.is_terminal else nullcontext()


@contextmanager
def database(folder: str | None) -> Iterator[Database]:
    """An open database, closed at the end. None is a temporary one."""
    db = _open(folder)
    own_ctrl_c()
    try:
        yield db
    finally:
        with status("Closing …"):
            db.close()


def _open(folder: str | None) -> Database:
    import penstock

    screen = console.err()
    if not screen.is_terminal:
        return penstock.open(folder)
    with screen.status(Text("Starting …")) as spinner:
        return penstock.open(folder, progress=lambda step: spinner.update(Text(f"{step[:1].upper()}{step[1:]} …")))


def own_ctrl_c() -> None:
    """Take Ctrl-C back from Spark, whose handler cancels every job of the process, streaming queries included."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
