"""Opens a database for a command: shows progress while it starts, and closes it without interruption by Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich.text import Text

from penstock.cli import console
from penstock.cli.interrupts import interrupts

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from penstock.api import Database


def status(text: str) -> AbstractContextManager[object]:
    """A spinner, if stderr is a terminal."""
    screen = console.err()
    return screen.status(Text(text)) if screen.is_terminal else nullcontext()


@contextmanager
def database(folder: str | None) -> Iterator[Database]:
    """Open a database, and close it at the end. None: a temporary one."""
    db = _open(folder)
    try:
        yield db
    finally:
        with interrupts.closing(), status("Closing …"):
            db.close()


def _open(folder: str | None) -> Database:
    import penstock

    screen = console.err()
    if not screen.is_terminal:
        return penstock.open(folder)
    with screen.status(Text("Starting …")) as spinner:
        return penstock.open(folder, progress=lambda step: spinner.update(Text(f"{step[:1].upper()}{step[1:]} …")))
