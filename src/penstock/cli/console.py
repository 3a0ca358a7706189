"""Where the command writes: results to stdout, everything about them to stderr."""

from __future__ import annotations

import sys

from rich.console import Console


def out() -> Console:
    """The console of results. Made anew each time, so that a replaced `sys.stdout` is honoured."""
    return Console(file=sys.stdout, highlight=False)


def err() -> Console:
    """The console of progress and errors."""
    return Console(file=sys.stderr, highlight=False)


def utf8_output() -> None:
    """Results and error texts hold `−`, `…` and box lines: a locale without them must not turn output into an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")
