"""The demo without a terminal: prints a line about once a second."""

from __future__ import annotations

from penstock.cli.demo.board import View
from penstock.cli.demo.summary import milliseconds


def plain_line(view: View) -> str:
    """The state of the demo on one line."""
    parts = [
        f"{view.elapsed:4.0f} s",
        f"{view.rows:>8,} rows",
        f"{view.rate:>7,.0f} rows/s",
        f"{view.bars:>5,} bars",
        f"{view.changes:>7,} changes",
        f"{view.late:>3,} late",
        f"p50 {milliseconds(view.p50):>8}",
        f"p99 {milliseconds(view.p99):>8}",
    ]
    if view.movers:
        top = view.movers[0]
        parts.append(f"top {top.symbol} {top.change:+.2f} %")
    return "  ".join(parts)
