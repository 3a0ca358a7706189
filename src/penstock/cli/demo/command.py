"""`penstock demo`: from an empty temporary database to a checked summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.cli import console, failure, options
from penstock.cli.demo.board import Board
from penstock.cli.demo.pipeline import Pipeline
from penstock.cli.demo.plain import plain_line
from penstock.cli.demo.screen import Screen
from penstock.cli.demo.summary import Summary, summarise, summary_table, verdict_text
from penstock.cli.interrupts import interrupts
from penstock.cli.session import database, status

if TYPE_CHECKING:
    from rich.console import Console

# looks smooth, and uses a small part of one core
FRAMES_PER_S = 8
SAMPLE_S = 0.5


def run_demo(*, seconds: int, rate: int, seed: int, plain: bool) -> int:
    """Run the demo. Returns 0 if the output adds up with the pushed rows."""
    out = console.out()
    plain = plain or not out.is_terminal
    board = Board()
    with database(None) as db:
        pipeline = Pipeline(db, board, rate=rate, seed=seed)
        try:
            with status("Creating the pipeline …"):
                pipeline.start()
            pushed_for = _watch(pipeline, board, seconds, out, plain=plain)
        finally:
            pipeline.close()
    if pipeline.error is not None:
        failure.report(pipeline.error, debug=options.debug_wanted)
        return failure.FAILED
    summary = summarise(board, pushed_for)
    _print(summary, out)
    return 0 if summary.holds else failure.FAILED


def _watch(pipeline: Pipeline, board: Board, seconds: int, out: Console, *, plain: bool) -> float:
    """Show the demo until its time is over, Ctrl-C, or an error. Returns how long rows were pushed."""
    began = time.monotonic()
    with ExitStack() as stack:
        screen = Screen(board.view, float(seconds))
        show: Callable[[], None]
        if plain:
            show = Lines(board, out)
        else:
            from rich.live import Live

            live = stack.enter_context(Live(console=out, screen=True, auto_refresh=False))

            def redraw() -> None:
                live.update(screen.render(out.width, out.height), refresh=True)

            show = redraw

        next_sample = began + SAMPLE_S
        # stopping early is fine: the pushed rows are still checked
        asked = stack.enter_context(interrupts.awaited())
        while pipeline.error is None and (now := time.monotonic()) < began + seconds and not asked.is_set():
            if now >= next_sample:
                board.sample()
                next_sample += SAMPLE_S
            show()
            asked.wait(1 / FRAMES_PER_S)
        pushed_for = time.monotonic() - began
        screen.note = "Waiting for the last windows …"
        show()
        pipeline.stop_feed()
    return pushed_for


class Lines:
    """Prints a line at most once a second."""

    def __init__(self, board: Board, out: Console) -> None:
        self._board = board
        self._out = out
        self._next = time.monotonic() + 1.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._next += 1.0
            self._out.print(plain_line(self._board.view()), markup=False, soft_wrap=True)


def _print(summary: Summary, out: Console) -> None:
    out.print(summary_table(summary))
    out.print(verdict_text(summary), soft_wrap=True)
