"""The demo on a terminal: panels made from a `View`, drawn anew several times a second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rich import box
from rich.console import RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.demo.board import Row, View
from penstock.cli.demo.feed import SYMBOLS
from penstock.cli.demo.sparkline import sparkline
from penstock.cli.demo.summary import milliseconds

HEAD_LINES = 5
UPPER_LINES = len(SYMBOLS) + 4
BORDER_LINES = 2
# below this width the opening, high and low of a bar give way
WIDE = 110


def draw(view: View, *, seconds: float, width: int, height: int, note: str = "") -> Layout:
    """The whole screen."""
    lower = max(4, height - HEAD_LINES - UPPER_LINES)
    layout = Layout()
    layout.split_column(
        Layout(_head(view, seconds, width, note), name="head", size=HEAD_LINES),
        Layout(name="upper", size=min(UPPER_LINES, max(4, height - HEAD_LINES - 6))),
        Layout(name="lower", minimum_size=4),
    )
    wide = width >= WIDE
    layout["upper"].split_row(Layout(_bars(view, wide=wide), ratio=3), Layout(_movers(view, wide=wide), ratio=2))
    layout["lower"].split_row(
        Layout(_changelog(view, lower - BORDER_LINES - 1), ratio=3),
        Layout(_late(view, lower - BORDER_LINES - 1), ratio=2),
    )
    return layout


def _head(view: View, seconds: float, width: int, note: str) -> Panel:
    spark = max(10, min(30, (width - 60) // 2))
    grid = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        grid.add_column(ratio=1)
    pushed = Text.assemble(
        (f"{view.rate:>7,.0f}", "bold green"),
        (" rows/s  ", "dim"),
        (sparkline(view.rate_history, spark, from_zero=True), "green"),
    )
    latency = Text.assemble(
        ("p50 ", "dim"), (milliseconds(view.p50), "bold yellow"), ("  p99 ", "dim"), (milliseconds(view.p99), "bold yellow"), "  ",
        (sparkline(view.p50_history, spark, from_zero=True), "yellow"),
    )  # fmt: skip
    counts = Text.assemble(
        (f"{view.rows:,}", "bold"), (" rows  ", "dim"), (f"{view.bars:,}", "bold"), (" bars  ", "dim"),
        (f"{view.changes:,}", "bold"), (" changes  ", "dim"), (f"{view.late:,}", "bold"), (" late", "dim"),
    )  # fmt: skip
    grid.add_row(pushed, latency)
    grid.add_row(counts, Text(note or "insert → subscriber, durable · Ctrl-C ends it", style="dim", no_wrap=True))
    grid.add_row(
        ProgressBar(total=seconds, completed=min(view.elapsed, seconds)),
        Text(f"{min(view.elapsed, seconds):.0f} of {seconds:.0f} s", style="dim"),
    )
    return Panel(
        grid, title="[bold cyan]Penstock[/] · market data", title_align="left", box=box.ROUNDED, border_style="cyan"
    )


def _bars(view: View, *, wide: bool) -> Panel:
    table = _table("symbol", ">window", *((">open", ">high", ">low") if wide else ()), ">close", ">vwap", ">volume")
    for row in view.latest_bars:
        rose = row["closing"] >= row["opening"]
        prices = [row["opening"], row["high"], row["low"]] if wide else []
        table.add_row(
            Text(row["symbol"], style="bold"),
            Text(_clock(row["window_start"]), style="dim"),
            *(Text(f"{p:.2f}") for p in prices),
            Text(f"{row['closing']:.2f}", style="green" if rose else "red"),
            Text(f"{row['vwap']:.3f}"),
            Text(f"{row['volume']:,}"),
        )
    return _panel(table, "One-second bars", "EMIT ON WINDOW CLOSE", "blue")


def _movers(view: View, *, wide: bool) -> Panel:
    table = _table("symbol", ">price", ">change", "last minute")
    for mover in view.movers:
        style = "green" if mover.change >= 0 else "red"
        table.add_row(
            Text(mover.symbol, style="bold"),
            Text(f"{mover.price:.2f}"),
            Text(f"{mover.change:+.2f} %", style=style),
            Text(sparkline(view.closes.get(mover.symbol, ()), 24 if wide else 10), style=style),
        )
    return _panel(table, "Top movers", "SELECT … FROM movers ORDER BY change", "magenta")


def _changelog(view: View, lines: int) -> Panel:
    table = _table("", "symbol", ">position", ">trades")
    for row in _newest(view.changelog, lines):
        style, sign = ("green", "+") if row["__weight"] > 0 else ("red", "−")
        cells = (sign, row["symbol"], f"{row['position']:,}", f"{row['trades']:,}")
        table.add_row(*(Text(c, style=style) for c in cells))
    return _panel(table, "Positions", "EMIT CHANGES", "green")


def _late(view: View, lines: int) -> Panel:
    table = _table("symbol", ">traded at", ">price", ">volume")
    for row in _newest(view.late_rows, lines):
        table.add_row(Text(row["symbol"], style="bold"), _clock(row["ts"]), f"{row['price']:.2f}", f"{row['volume']:,}")
    return _panel(table, "Late trades", "LATE DATA TO late_trades", "yellow")


def _newest(rows: tuple[Row, ...], lines: int) -> tuple[Row, ...]:
    return rows[-lines:] if lines > 0 else ()


def _table(*headers: str) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim", padding=(0, 1))
    for header in headers:
        right = header.startswith(">")
        table.add_column(header.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    return table


def _panel(body: RenderableType, title: str, clause: str, style: str) -> Panel:
    heading = Text.assemble((title, f"bold {style}"), (f" · {clause}", "dim"))
    return Panel(body, title=heading, title_align="left", box=box.ROUNDED, border_style=style)


def _clock(value: datetime) -> str:
    return f"{value:%H:%M:%S}"


class Screen:
    """Draws views of the board whenever it is asked to render, so that a resized terminal gets a fitting layout."""

    def __init__(self, view: Callable[[], View], seconds: float) -> None:
        self._view = view
        self._seconds = seconds
        self.note = ""

    def render(self, width: int, height: int) -> Layout:
        return draw(self._view(), seconds=self._seconds, width=width, height=height, note=self.note)
