"""The output streams: results go to stdout, everything else to stderr."""

from __future__ import annotations

import sys

from rich.console import Console


def out() -> Console:
    """The console for results. Created at each call, so that a replaced `sys.stdout` is used."""
    return Console(file=sys.stdout, highlight=False)


def err() -> Console:
    """The console for progress and errors."""
    return Console(file=sys.stderr, highlight=False)


def utf8_output() -> None:
    """Results and errors contain `−`, `…` and box lines. Printing them must not fail in a locale without them."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")
