"""How a command fails: the error message for the user, and the exit code."""

from __future__ import annotations

import sys
import traceback

from rich.text import Text

from penstock.cli import console
from penstock.errors import PenstockError

FAILED = 1


def describe(error: BaseException) -> Text:
    """Code, message, position with a caret, and hint, coloured for a terminal."""
    if not isinstance(error, PenstockError):
        text = Text("PSK-8001", style="bold red")
        text.append(f": {type(error).__name__}: {error}\n", style="default not bold")
        text.append("Hint: ", style="yellow")
        return text.append("This is a bug in Penstock. --debug shows where it happened.", style="default not bold")
    text = Text()
    for i, line in enumerate(error.render().splitlines()):
        if i:
            text.append("\n")
        if i == 0 and line.startswith(error.code):
            text.append(error.code, style="bold red")
            text.append(line[len(error.code) :])
        elif line.strip() and not line.strip().strip("^"):
            text.append(line, style="bold red")
        elif line.startswith("Hint: "):
            text.append("Hint: ", style="yellow")
            text.append(line.removeprefix("Hint: "))
        else:
            text.append(line)
    return text


def report(error: BaseException, *, debug: bool = False) -> None:
    """Print an error to stderr, preceded by the traceback if `debug` is set."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    console.err().print(describe(error), soft_wrap=True)
