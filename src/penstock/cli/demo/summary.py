"""The totals of the demo, and whether they add up."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from penstock.cli.demo.board import Board
from penstock.cli.demo.ledger import Balance


@dataclass(frozen=True)
class Summary:
    """Totals of a run. Latencies are in seconds, over all rows after warm-up; None if nothing arrived."""

    seconds: float
    rows: int
    bars: int
    changes: int
    retractions: int
    late: int
    p50: float | None
    p99: float | None
    arrived: int
    balance: Balance

    @property
    def holds(self) -> bool:
        """True if every share is accounted for and every row has reached the subscriber."""
        return self.balance.holds and self.arrived == self.rows

    def verdict(self) -> str:
        """The result of the check as a sentence."""
        b = self.balance
        parts = f"{b.closed:,} in closed windows + {b.late:,} late + {b.open:,} still open"
        if not b.holds:
            return f"Does NOT add up: {parts} ≠ {b.pushed:,} shares pushed ({abs(b.missing):,} {'missing' if b.missing > 0 else 'too many'})."
        if self.arrived != self.rows:
            return f"Does NOT add up: {self.arrived:,} of {self.rows:,} rows reached the subscriber."
        return f"Adds up: {parts} = {b.pushed:,} shares pushed; all {self.rows:,} rows reached the subscriber."


def summarise(board: Board, seconds: float) -> Summary:
    """The totals on a board; `seconds` is how long rows were pushed."""
    view = board.view()
    return Summary(
        seconds=seconds,
        rows=view.rows,
        bars=view.bars,
        changes=view.changes,
        retractions=view.retractions,
        late=view.late,
        p50=board.overall_latency(0.5),
        p99=board.overall_latency(0.99),
        arrived=board.rows_arrived(),
        balance=board.balance(),
    )


def milliseconds(seconds: float | None) -> str:
    """`93 ms`, or a dash."""
    return "–" if seconds is None else f"{seconds * 1000:,.0f} ms"


def summary_table(summary: Summary) -> Table:
    """The totals, one per line."""
    rate = summary.rows / summary.seconds if summary.seconds > 0 else 0.0
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    table.add_row("rows pushed", f"{summary.rows:,}", f"{rate:,.0f} rows/s for {summary.seconds:.0f} s")
    table.add_row("windows closed", f"{summary.bars:,}", "one-second bars, each emitted once")
    table.add_row("changes", f"{summary.changes:,}", f"of positions, {summary.retractions:,} of them retractions")
    table.add_row("late rows", f"{summary.late:,}", "stored in late_trades")
    table.add_row("latency p50", milliseconds(summary.p50), "insert → subscriber, durable, after warm-up")
    table.add_row("latency p99", milliseconds(summary.p99), "")
    return table


def verdict_text(summary: Summary) -> Text:
    """The result of the check, green or red."""
    return Text(
        ("✓ " if summary.holds else "✗ ") + summary.verdict(), style="bold green" if summary.holds else "bold red"
    )
