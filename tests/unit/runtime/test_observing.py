"""Figures for Prometheus, and reports as JSON lines, of an engine without a JVM."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import termios
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from tests.unit.runtime.engines import database

from penstock.api.exposition import DATABASE, OBJECTS, SUBSCRIPTIONS, registry
from penstock.api.statusfile import StatusFile
from penstock.cli.keys import Keys, named
from penstock.cli.logs import show_logs
from penstock.cli.options import Sort
from penstock.cli.top import SORTS, View, screen, show_top
from penstock.config import LoggingSettings
from penstock.errors import fail
from penstock.runtime.logs import Reports, log_file
from penstock.runtime.statements.inspect import ObjectStatus
from penstock.runtime.statements.totals import DatabaseStatus
from penstock.serve.figures import SubscriptionFigures


def samples(engine: Any) -> dict[tuple[str, ...], float]:
    text = generate_latest(registry(engine)).decode()
    found = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert all(s.name.startswith("penstock_") for s in found)
    return {
        (s.name, *(v for k, v in sorted(s.labels.items()) if k in ("object", "operator", "name"))): s.value
        for s in found
    }


def test_every_figure_is_one_of_its_record() -> None:
    assert {f for _, f, _ in OBJECTS} <= set(ObjectStatus.__dataclass_fields__)
    assert {f for _, f, _ in DATABASE} <= set(DatabaseStatus.__dataclass_fields__)
    assert {f for _, f, _ in SUBSCRIPTIONS} <= set(SubscriptionFigures.__dataclass_fields__)


def test_figures_are_those_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT PRIMARY KEY); CREATE MATERIALIZED VIEW m AS SELECT k FROM t")
        db.engine.start()
        sub = db.run("SUBSCRIBE m WITH (name = 'dash')")
        db.insert("t", (1,), (2,))
        assert sub.next(20) is not None
        db.rows("m")
        found = samples(db.engine)
        assert found["penstock_object_rows_total", "t"] == found["penstock_object_rows_total", "m"] == 2
        assert found["penstock_object_subscribers", "m"] == 1
        assert found["penstock_subscription_rows_total", "dash", "m"] == 2
        assert found["penstock_subscription_pending_messages", "dash", "m"] == 0
        assert found[("penstock_log_head_lsn",)] == db.engine.log.head
        assert found[("penstock_database_uptime_seconds",)] >= 0
        assert found[("penstock_database_rows_in_total",)] == found[("penstock_database_rows_out_total",)] == 2
        assert found["penstock_object_rows_in_total", "m"] == 2 and found["penstock_object_pending_rows", "m"] == 0
        assert found["penstock_object_failing", "m"] == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reports = Reports(tmp_path, LoggingSettings(file=True, level="info"))
    logger = logging.getLogger("penstock.test")
    level = logging.getLogger("penstock").level
    logger.debug("not this")
    logger.info("started %s", "m")
    try:
        raise fail("PSK-7001", "no")
    except Exception as error:
        logger.error("m failed", exc_info=error)
    reports.close()
    reports.close()
    assert logging.getLogger("penstock").level <= level
    logger.error("after the end")
    return tmp_path


def test_reports_are_json_lines(folder: Path) -> None:
    lines = [json.loads(line) for line in log_file(folder).read_text().splitlines()]
    assert [(line["level"], line["message"], line.get("error")) for line in lines] == [
        ("info", "started m", None),
        ("error", "m failed", "PSK-7001"),
    ]
    assert lines[0]["time"].endswith("+00:00") and "Traceback" in lines[1]["trace"]


def test_reports_are_shown_without_opening_the_database(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with log_file(folder).open("a") as file:
        file.write("not JSON\n")
        file.write('{"torn": ')
    assert show_logs(str(folder), count=10, level="error", follow=False, raw=False) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].endswith("error    penstock.test: m failed") and shown[-1] == "not JSON"
    assert show_logs(str(folder), count=1, level="info", follow=False, raw=True) == 0
    assert capsys.readouterr().out == "not JSON\n"
    assert show_logs(str(folder / "nothing"), count=1, level="info", follow=False, raw=True) == 1
    assert "logging.file" in capsys.readouterr().err


def test_without_the_setting_nothing_is_written(tmp_path: Path) -> None:
    Reports(tmp_path, LoggingSettings()).close()
    assert list(tmp_path.iterdir()) == []


def test_top_shows_the_figures_of_a_database_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT PRIMARY KEY); CREATE MATERIALIZED VIEW m AS SELECT k FROM t")
        db.engine.start()
        sub = db.run("SUBSCRIBE m WITH (name = 'dash')")
        db.insert("t", (1,), (2,))
        assert sub.next(20) is not None
        file = StatusFile(db.engine)
        file.write()
        assert show_top(str(tmp_path), sort="rows", name=None, once=True) == 0
        shown = capsys.readouterr().out
        assert "Running" in shown and "dash" in shown and "materialized view" in shown
        assert show_top(str(tmp_path), sort="rows", name="M", once=True) == 0
        shown = capsys.readouterr().out
        assert "retained bytes" in shown and "epochs, compute" in shown and "epochs, record" in shown
        assert show_top(str(tmp_path), sort="rows", name="nothing", once=True) == 1
        file.close()
        assert show_top(str(tmp_path), sort="rows", name=None, once=True) == 1
        assert "logging.status" in capsys.readouterr().err


def test_rates_and_order_come_from_two_readings() -> None:
    def facts(at: float, **rows: int) -> dict[str, Any]:
        zero = dict.fromkeys(SORTS[3:], 0)
        objects = [
            {"name": n, "kind": "table", "state": "ready", "rows": r, "error": None, "warning": None} | zero
            for n, r in rows.items()
        ]
        return {
            "time": at,
            "database": dict.fromkeys(DatabaseStatus.__dataclass_fields__, 0) | {"state": "Running"},
            "objects": objects,
            "subscriptions": [],
        }

    console = Console(width=200, file=io.StringIO())
    console.print(screen(facts(12.0, a=100, b=50), facts(10.0, a=98, b=10), View("rate")))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.index(" b ") < text.index(" a ") and " 20 " in text and " 1 " in text


def test_keys_sort_mark_and_open_an_object() -> None:
    view: View | None = View()
    for key in ("down", "down", "down", "up", "x", "enter"):
        assert view is not None
        view = view.pressed(key, ["a", "b", "c"])
    assert view == View("name", 1, "b")
    view = view.pressed("s", ["a"]) if view is not None else None  # Nothing to sort.
    assert view is not None and view.pressed("back", ["a"]) == View("name", 1, None)
    view = View()
    for sort in (*SORTS[1:], SORTS[0]):
        view = view.pressed("s", [])  # type: ignore[union-attr]
        assert view is not None and view.sort == sort
    assert view is not None and view.pressed("q", []) is None and view.pressed("enter", []) == view
    assert {s.value for s in Sort} == set(SORTS)


def test_keys_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        before = termios.tcgetattr(theirs)
        with Keys() as keys:
            for typed, name in ((b"\x1b[A", "up"), (b"\r", "enter"), (b"s", "s"), (b"\x1b", "back")):
                os.write(ours, typed)
                assert keys.wait(20) == name
            assert keys.wait(0) is None
        assert termios.tcgetattr(theirs) == before
    os.close(ours)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with Keys() as keys:
            assert keys.wait(0) is None
    assert named("\x1b[B") == "down"
