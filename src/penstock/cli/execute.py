"""Runs one statement. The outcome is rows, nothing, or a subscription to follow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.interrupts import LOOK_S, TERMINATED, interrupts
from penstock.cli.options import Format
from penstock.cli.statements import Statement, relocate
from penstock.cli.tail import tail_for
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.api import Database, GroupSubscription, Subscription


@dataclass(frozen=True)
class Outcome:
    """`table` is None if the statement returns no rows; `subscription` is set for SUBSCRIBE. `elapsed` is in seconds."""

    statement: Statement
    elapsed: float
    table: pa.Table | None = None
    subscription: Subscription | GroupSubscription | None = None


def execute(db: Database, statement: Statement, script: str) -> Outcome:
    """Run one statement of a script. The position of an error refers to the script."""
    from penstock.api import GroupSubscription, Subscription

    began = time.perf_counter()
    try:
        result = db.execute(statement.text)
        if isinstance(result, (Subscription, GroupSubscription)):
            return Outcome(statement, time.perf_counter() - began, subscription=result)
        table = result.arrow() if result is not None and result.columns else None
    except PenstockError as error:
        raise relocate(error, statement, script) from error.__cause__
    return Outcome(statement, time.perf_counter() - began, table=table)


def follow(
    subscription: Subscription | GroupSubscription, output: Format, console: Console, *, limit: int | None = None
) -> int:
    """Print a subscription's rows until it ends, `limit` rows are printed, or Ctrl-C. Returns the number of rows printed."""
    from penstock.api import Change

    tail = tail_for(output, console)
    printed = 0
    with subscription, interrupts.awaited() as asked:
        while not asked.is_set():
            change = subscription.next(LOOK_S)
            if change is None:
                if subscription.closed:
                    break
                continue
            if isinstance(change, Change) and change.kind == "progress":
                tail.progress(change.epoch, change.lsn, change.watermark)
                continue
            rows = change.rows()
            if limit is not None:
                rows = rows[: limit - printed]
            tail.write(rows)
            printed += len(rows)
            if limit is not None and printed >= limit:
                break
    tail.close()
    if interrupts.terminated:
        raise SystemExit(TERMINATED)
    return printed
