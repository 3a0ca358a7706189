"""The demo's feed, books, latencies, screen and summary."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli.demo.board import Board, Mover
from penstock.cli.demo.feed import JITTER_MS, LATE_MS, SYMBOLS, Batch, Market
from penstock.cli.demo.latency import Latencies, percentile
from penstock.cli.demo.ledger import DELAY_MS, WINDOW_MS, Balance, Ledger
from penstock.cli.demo.pipeline import RANKING, SQL
from penstock.cli.demo.plain import plain_line
from penstock.cli.demo.screen import draw
from penstock.cli.demo.sparkline import sparkline
from penstock.cli.demo.summary import summarise, summary_table
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateSource, CreateStream, CreateView, Select

NOW = 1_800_000_000_000


def test_the_same_seed_gives_the_same_trades() -> None:
    first, second, other = Market(1), Market(1), Market(2)
    assert [first.trades(50, NOW), first.straggler(NOW)] == [second.trades(50, NOW), second.straggler(NOW)]
    assert other.trades(50, NOW) != Market(1).trades(50, NOW)


def test_trades_are_within_the_watermarks_delay_and_stragglers_are_not() -> None:
    market = Market(7)
    batch = market.trades(2_000, NOW)
    assert JITTER_MS < DELAY_MS
    assert all(NOW - JITTER_MS < ts <= NOW for ts in batch.ts)
    assert all(p > 0 for p in batch.price) and all(v > 0 for v in batch.volume)
    assert {abs(q) - v for q, v in zip(batch.quantity, batch.volume, strict=True)} == {0}
    assert set(batch.symbol) == {name for name, _ in SYMBOLS} and len(SYMBOLS) == 12
    (late,) = market.straggler(NOW).ts
    assert LATE_MS[0] <= NOW - late <= LATE_MS[1] and LATE_MS[0] > DELAY_MS + 2 * WINDOW_MS


def test_a_batch_is_inserted_as_arrow() -> None:
    table = Market(7).trades(3, NOW).arrow()
    assert [str(t) for t in table.schema.types] == ["string", "double", "int64", "int64", "timestamp[us, tz=UTC]"]
    assert table["ts"][0].as_py().timestamp() * 1000 == pytest.approx(NOW, abs=JITTER_MS)


def test_the_sql_parses_and_is_what_the_board_reads() -> None:
    source, bars, positions, movers = parse_script(SQL)
    assert isinstance(source, CreateSource)
    assert [c.name for c in source.columns] == Market(7).trades(1, NOW).arrow().column_names
    assert source.watermark is not None and source.watermark.delay_ms == DELAY_MS
    assert isinstance(bars, CreateStream) and bars.late_to == "late_trades"
    assert isinstance(positions, CreateStream) and isinstance(movers, CreateView)
    (ranking,) = parse_script(RANKING)
    assert isinstance(ranking, Select)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 9)), min_size=1))
def test_books_of_an_ideal_engine_balance(trades: list[tuple[int, int]]) -> None:
    ledger = Ledger()
    times, volumes = [t for t, _ in trades], [v for _, v in trades]
    n = len(trades)
    ledger.add(Batch(["A"] * n, [1.0] * n, volumes, volumes, times))
    closed = sum(v for t, v in trades if t - t % WINDOW_MS + WINDOW_MS <= ledger.watermark_ms)
    assert ledger.balance(closed=closed, late=0).holds
    assert ledger.balance(closed=closed + 1, late=0).missing == -1


def test_balance_counts_late_rows() -> None:
    assert Balance(pushed=10, closed=6, late=1, open=3).holds
    assert Balance(pushed=10, closed=6, late=0, open=3).missing == 1


def test_percentile_is_weighted() -> None:
    assert percentile([], 0.5) is None
    assert percentile([(5.0, 1)], 0.99) == 5.0
    assert percentile([(3.0, 1), (1.0, 98), (9.0, 1)], 0.5) == 1.0
    assert percentile([(3.0, 1), (1.0, 98), (9.0, 1)], 0.99) == 3.0
    assert percentile([(3.0, 1), (1.0, 98), (9.0, 1)], 1.0) == 9.0


def test_latency_of_every_row_from_running_counts() -> None:
    latency = Latencies(recent_s=5.0)
    latency.pushed({"A": 3}, at=10.0)
    latency.pushed({"A": 1, "B": 1}, at=11.0)
    latency.arrived("A", 2, at=11.5)
    assert latency.rows_arrived == 0
    latency.arrived("A", 4, at=12.0)
    assert latency.rows_arrived == 4
    assert (latency.overall(0.5), latency.overall(1.0)) == (2.0, 2.0)
    latency.arrived("B", 1, at=11.1)
    assert latency.overall(0.2) == pytest.approx(0.1)
    assert latency.recent(1.0, now=16.5) == 2.0
    assert latency.recent(1.0, now=30.0) is None
    latency.forget()
    assert latency.overall(0.5) is None and latency.rows_arrived == 5


def test_sparkline() -> None:
    assert sparkline([], 3) == "   "
    assert sparkline([1, 1], 4) == "  ▄▄"
    assert sparkline([0, 7], 2) == "▁█"
    assert sparkline([1, 2, 3, 4], 2) == "▁█"
    assert sparkline([5, 10], 2, from_zero=True) == "▅█"


def bar(symbol: str, volume: int) -> dict[str, Any]:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    prices = {"opening": 1.0, "high": 3.0, "low": 0.5, "closing": 2.0, "vwap": 1.5}
    return {"symbol": symbol, "window_start": at, **prices, "volume": volume, "trades": 1}


@pytest.fixture
def board() -> Board:
    """Four shares in a closed window, one late, two in an open window."""
    board = Board()
    batch = Batch(["A", "A", "A"], [1.0, 2.0, 2.0], [4, 1, 2], [4, -1, 2], [NOW - 5_000, NOW - 5_000, NOW])
    board.push_begins(batch)
    board.push_done(batch, straggler=False)
    board.bars([bar("A", 4)])
    board.positions([{"symbol": "A", "position": 4, "trades": 1, "__weight": 1}], at=0.0)
    board.positions(
        [
            {"symbol": "A", "position": 4, "trades": 1, "__weight": -1},
            {"symbol": "A", "position": 5, "trades": 3, "__weight": 1},
        ],
        at=0.0,
    )
    board.ranking([Mover("A", 2.0, 1.25, 7)])
    board.sample()
    return board


def late_row(volume: int) -> dict[str, Any]:
    return {
        "symbol": "A",
        "price": 2.0,
        "volume": volume,
        "quantity": -volume,
        "ts": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    }


def test_summary_adds_up(board: Board) -> None:
    assert not board.settled()
    board.late([late_row(1)])
    assert board.settled()
    summary = summarise(board, 2.0)
    assert summary.holds and (summary.rows, summary.bars, summary.changes, summary.retractions, summary.late) == (
        3,
        1,
        3,
        1,
        1,
    )
    assert (
        summary.verdict()
        == "Adds up: 4 in closed windows + 1 late + 2 still open = 7 shares pushed; all 3 rows reached the subscriber."
    )


def test_summary_says_what_is_missing(board: Board) -> None:
    summary = summarise(board, 2.0)
    assert not summary.holds and "(1 missing)" in summary.verdict()
    board.late([late_row(2)])
    assert "(1 too many)" in summarise(board, 2.0).verdict()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 45), (60, 15)])
def test_screen_fits_and_shows_every_part(board: Board, width: int, height: int) -> None:
    board.late([late_row(1)])
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(draw(board.view(), seconds=40, width=width, height=height), height=height)
    lines = console.export_text().rstrip("\n").splitlines()
    assert len(lines) == height and max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    for title in ("Penstock", "One-second bars", "Top movers", "Positions", "Late trades"):
        assert title in text


def test_plain_line_and_summary_table(board: Board) -> None:
    assert "3 rows" in plain_line(board.view()) and "top A +1.25 %" in plain_line(board.view())
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(summary_table(summarise(board, 2.0)))
    assert "windows closed" in console.export_text()
