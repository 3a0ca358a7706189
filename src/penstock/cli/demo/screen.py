"""The demo on a terminal: draws panels from a `View` several times a second."""

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
BORDER_LINES = 2
HEADER_LINES = 1
UPPER_LINES = len(SYMBOLS) + HEADER_LINES + BORDER_LINES
LOWER_LINES = 6
# below this width, the opening, high and low of a bar are hidden
WIDE = 110
# border and padding of a panel
FRAME = 4
# the width of a ranking line without its sparkline
MOVER_WIDTH = 23


def draw(view: View, *, seconds: float, width: int, height: int, note: str = "") -> Layout:
    """The whole screen. Rows that do not fit are cut off at the bottom of their panel."""
    wide = width >= WIDE
    left = width * 58 // 100
    upper = max(4, min(UPPER_LINES, height - HEAD_LINES - LOWER_LINES))
    lines = max(0, height - HEAD_LINES - upper - BORDER_LINES - HEADER_LINES)
    layout = Layout()
    layout.split_column(
        Layout(_head(view, seconds, width, note), name="head", size=HEAD_LINES),
        Layout(name="upper", size=upper),
        Layout(name="lower"),
    )
    layout["upper"].split_row(Layout(_bars(view, wide=wide), size=left), Layout(_movers(view, width - left)))
    layout["lower"].split_row(Layout(_changelog(view, lines), size=left), Layout(_late(view, lines)))
    return layout


def _head(view: View, seconds: float, width: int, note: str) -> Panel:
    left = max(46, (width - FRAME) * 58 // 100)
    right = max(20, width - FRAME - left - 2)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=left, no_wrap=True)
    grid.add_column(width=right, no_wrap=True)
    rate = f"{view.rate:,.0f}"
    latency = (milliseconds(view.p50), milliseconds(view.p99))
    grid.add_row(
        Text.assemble(
            (rate, "bold green"), (" rows/s  ", "dim"),
            (sparkline(view.rate_history, min(40, left - 16), from_zero=True), "green"),
        ),
        Text.assemble(
            ("p50 ", "dim"), (latency[0], "bold yellow"), ("  p99 ", "dim"), (latency[1], "bold yellow"), "  ",
            (sparkline(view.p50_history, min(30, right - 26), from_zero=True), "yellow"),
        ),
    )  # fmt: skip
    counts = [(view.rows, "rows"), (view.bars, "bars"), (view.changes, "changes"), (view.late, "late")]
    if width >= WIDE:
        counts.insert(3, (view.retractions, "retractions"))
    line = Text()
    for n, word in counts:
        line.append(f"{n:,}", style="bold").append(f" {word} ", style="dim")
    grid.add_row(line, Text(note or "insert → subscriber, durable", style="dim"))
    shown = min(view.elapsed, seconds)
    bar = ProgressBar(total=seconds, completed=shown, width=left - 2, complete_style="cyan", finished_style="cyan")
    grid.add_row(bar, Text(f"{shown:.0f} of {seconds:.0f} s · Ctrl-C to stop", style="dim"))
    title = Text.assemble(("Penstock", "bold cyan"), " · market data, live")
    return Panel(grid, title=title, title_align="left", box=box.ROUNDED, border_style="cyan")


def _bars(view: View, *, wide: bool) -> Panel:
    headers = ("symbol", "window", *((">open", ">high", ">low") if wide else ()), ">close", ">vwap", ">volume")
    table = _table(*headers, gap=2 if wide else 1)
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
    body = table if view.latest_bars else _soon("The first windows close in a moment.")
    return _panel(body, "One-second bars", "EMIT ON WINDOW CLOSE", "blue")


def _movers(view: View, width: int) -> Panel:
    table = _table("symbol", ">price", ">change", "", gap=1)
    spark = max(0, min(30, width - FRAME - MOVER_WIDTH))
    for mover in view.movers:
        style = "green" if mover.change >= 0 else "red"
        table.add_row(
            Text(mover.symbol, style="bold"),
            Text(f"{mover.price:.2f}"),
            Text(f"{mover.change:+.2f} %", style=style),
            Text(sparkline(view.closes.get(mover.symbol, ()), spark), style=style),
        )
    body = table if view.movers else _soon("The first ranking appears in a moment.")
    return _panel(body, "Top movers", "ORDER BY change", "magenta")


def _changelog(view: View, lines: int) -> Panel:
    table = _table("", "symbol", ">position", ">trades", gap=2)
    for row in _newest(view.changelog, lines):
        style, sign = ("green", "+") if row["__weight"] > 0 else ("red", "−")
        cells = (sign, row["symbol"], f"{row['position']:>10,}", f"{row['trades']:>8,}")
        table.add_row(*(Text(c, style=style) for c in cells))
    body = table if view.changelog else _soon("The first changes appear in a moment.")
    return _panel(body, "Positions", "EMIT CHANGES", "green")


def _late(view: View, lines: int) -> Panel:
    table = _table("symbol", "traded at", ">price", ">volume", gap=1)
    for row in _newest(view.late_rows, lines):
        table.add_row(Text(row["symbol"], style="bold"), _clock(row["ts"]), f"{row['price']:.2f}", f"{row['volume']:,}")
    body = table if view.late_rows else _soon("None so far. Stragglers arrive seconds after their window has closed.")
    return _panel(body, "Late trades", "LATE DATA TO", "yellow")


def _soon(text: str) -> Text:
    """The text of an empty panel."""
    return Text(text, style="dim italic")


def _newest(rows: tuple[Row, ...], lines: int) -> tuple[Row, ...]:
    return rows[-lines:] if lines > 0 else ()


def _table(*headers: str, gap: int) -> Table:
    """A borderless table; columns whose headers start with `>` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0))
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
    """Draws the current view of the board at each render, with a layout for the current terminal size."""

    def __init__(self, view: Callable[[], View], seconds: float) -> None:
        self._view = view
        self._seconds = seconds
        self.note = ""

    def render(self, width: int, height: int) -> Layout:
        return draw(self._view(), seconds=self._seconds, width=width, height=height, note=self.note)
