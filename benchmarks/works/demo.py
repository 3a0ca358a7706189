"""The demonstration, as a user sees it: from the start of the process to its first row, and how long rows take while the JVM is still busy compiling."""

from __future__ import annotations

import time

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work
from benchmarks.works.cold import age

RATE = 3_000
SEED = 7
EARLY_S = 5.0
SHOWN = 0.5


def with_penstock(quick: bool) -> Figures:
    from penstock.cli.demo.board import Board
    from penstock.cli.demo.pipeline import Pipeline

    board = Board()
    with penstock.opened() as db:
        pipeline = Pipeline(db, board, rate=RATE, seed=SEED)
        try:
            pipeline.start()
            figures = {"begins": [age()]}
            began = time.monotonic()
            # Each figure is over the five seconds before it, as on the screen.
            for after, figure in ((EARLY_S, "early"), (2 * EARLY_S, "late"), (4 * EARLY_S, "warm"))[
                : 2 if quick else 3
            ]:
                time.sleep(max(0.0, began + after - time.monotonic()))
                p50 = board.view().p50
                figures[figure] = [] if p50 is None else [p50 * 1_000]
            pipeline.stop_feed()
        finally:
            pipeline.close()
    if pipeline.error is not None:
        raise pipeline.error
    return figures


WORK = Work(
    name="demo",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("demo: start of the process to its first row", "begins", "s", better="less", digits=1),
        Row("demo: insert to subscriber, p50 after 5 s", "early", "ms", (AtMost(100.0),), better="less", digits=0),
        Row("demo: p50 after 10 s", "late", "ms", better="less", digits=0),
        Row("demo: p50 after 20 s", "warm", "ms", better="less", digits=0),
    ),
)
