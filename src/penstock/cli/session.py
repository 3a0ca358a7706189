"""Opening a database for a command: progress while it starts, and an end that Ctrl-C does not cut short."""

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
    """A spinner on stderr if it is a terminal, nothing otherwise."""
    screen = console.err()
    return screen.status(Text(text)) if screen.is_terminal else nullcontext()


@contextmanager
def database(folder: str | None) -> Iterator[Database]:
    """An open database, closed at the end. None is a temporary one."""
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
