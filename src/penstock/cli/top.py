"""`penstock top`: the figures of a database that another process has open."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.failure import FAILED
from penstock.cli.keys import Keys
from penstock.runtime.logs import status_file

_LOOK_S = 0.5
_OLD_S = 10.0
"""A file of this age belongs to a process that was killed."""

Facts = Mapping[str, Any]

SORTS = ("name", "rows", "rate", "pending_rows", "lag_ms", "late_rows", "state_rows", "state_bytes", "subscribers")
"""The figures by which objects can be sorted."""


@dataclass(frozen=True)
class View:
    """What is shown: all objects in some order, one of them marked; or one object."""

    sort: str = "name"
    marked: int = 0
    name: str | None = None

    def pressed(self, key: str, names: Sequence[str]) -> View | None:
        """What is shown after a key; `names` are the objects as they are listed now. None: it was the key that ends it."""
        match key:
            case "q":
                return None
            case "s" if self.name is None:
                return replace(self, sort=SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)])
            case "up":
                return replace(self, marked=max(0, self.marked - 1))
            case "down":
                return replace(self, marked=max(0, min(len(names) - 1, self.marked + 1)))
            case "enter" if self.name is None and names:
                return replace(self, name=names[min(self.marked, len(names) - 1)])
            case "back":
                return replace(self, name=None)
        return self


def show_top(folder: str, *, sort: str, name: str | None, once: bool) -> int:
    """Shows the figures and renews them until Ctrl-C; with `once`, shows them once."""
    path = status_file(Path(folder))
    console = Console()
    before: Facts | None = None
    now = read(path)
    if now is None:
        sys.stderr.write(
            f"{path} does not exist, or is old. Open the database with the setting logging.status = true.\n"
        )
        return FAILED
    if name is not None and not any(o["name"].lower() == name.lower() for o in now["objects"]):
        sys.stderr.write(f"{name} is not an object of this database.\n")
        return FAILED
    view: View | None = View(sort, 0, name)
    assert view is not None
    if once:
        console.print(screen(now, None, view))
        return 0
    shown = Live(screen(now, None, view), console=console, screen=console.is_terminal, auto_refresh=False)
    with Keys() as keys, shown as live:
        while True:
            key = keys.wait(_LOOK_S)
            found = read(path)
            if found is None:
                return 0
            if found["time"] != now["time"]:
                before, now = now, found
            if key is not None:
                view = view.pressed(key, [o["name"] for o in _sorted(now, before, view.sort)])
                if view is None:
                    return 0
            live.update(screen(now, before, view), refresh=True)


def read(path: Path) -> Facts | None:
    """What the file says; None if the database is not open."""
    try:
        facts: Facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return facts if time.time() - facts["time"] < _OLD_S else None


def screen(now: Facts, before: Facts | None, view: View) -> Group:
    whole = now["database"]
    up = int(whole["uptime_s"])
    head = Text(
        f"{whole['state']}, up {up // 3600}:{up // 60 % 60:02}:{up % 60:02}, LSN {whole['lsn']}, log {whole['log_bytes'] / 1e6:.1f} MB\n"
        f"rows in {whole['rows_in']} ({whole['rows_in_per_s']:.0f}/s), out {whole['rows_out']} ({whole['rows_out_per_s']:.0f}/s), "
        f"pending {whole['pending_rows']}, late {whole['late_rows']}, dropped {whole['dropped_rows']}, errors {whole['error_rows']}, "
        f"checkpoints {whole['checkpoints_completed']} ({whole['checkpoints_failed']} failed)"
    )
    foot = Text(f"sorted by {view.sort}; s: sort, up and down, Enter: one object, Esc: all, q: end", style="dim")
    if view.name is not None:
        name = view.name
        one = next((o for o in now["objects"] if o["name"].lower() == name.lower()), None)
        detail = Text(f"{name} was dropped") if one is None else _detail(one)
        return Group(head, detail, _subscriptions(now, name), foot)
    return Group(head, _objects(now, before, view), _subscriptions(now, None), foot)


def _sorted(now: Facts, before: Facts | None, sort: str) -> list[dict[str, Any]]:
    """The objects with their rates since the last reading, in order."""
    old = {o["name"]: o["rows"] for o in before["objects"]} if before is not None else {}
    seconds = now["time"] - before["time"] if before is not None else 0.0
    rows = [
        o | {"rate": (o["rows"] - old[o["name"]]) / seconds if o["name"] in old and seconds > 0 else 0.0}
        for o in now["objects"]
    ]
    rows.sort(key=lambda o: o[sort] if sort == "name" else -o[sort])
    return rows


def _objects(now: Facts, before: Facts | None, view: View) -> Table:
    table = Table(
        "object",
        "kind",
        "state",
        "rows",
        "rows/s",
        "pending",
        "lag ms",
        "late",
        "state rows",
        "state MB",
        "subscribers",
        "error",
    )
    rows = _sorted(now, before, view.sort)
    for number, o in enumerate(rows):
        table.add_row(
            o["name"],
            o["kind"],
            o["state"],
            str(o["rows"]),
            f"{o['rate']:.0f}",
            str(o["pending_rows"]),
            str(o["lag_ms"]),
            str(o["late_rows"]),
            str(o["state_rows"]),
            f"{o['state_bytes'] / 1e6:.1f}",
            str(o["subscribers"]),
            Text(o["error"] or o["warning"] or ""),
            style="reverse" if number == min(view.marked, len(rows) - 1) else "",
        )
    return table


def _detail(one: Facts) -> Table:
    """All figures of one object, and of each operator of its query."""
    table = Table("figure", "value")
    for key, value in one.items():
        if key not in ("operators", "epochs") and value is not None:
            table.add_row(key.replace("_", " "), Text(f"{value:.1f}" if isinstance(value, float) else str(value)))
    for phase, timing in one["epochs"].items():
        table.add_row(
            f"epochs, {phase}", f"p50 {timing['p50_ms']:.1f} ms, p99 {timing['p99_ms']:.1f} ms of {timing['count']}"
        )
    for operator in one["operators"]:
        table.add_row(
            f"operator {operator['name']}", f"{operator['state_rows']} rows, {operator['state_bytes']} bytes of state"
        )
    return table


def _subscriptions(now: Facts, name: str | None) -> Table:
    table = Table("subscription", "name", "to", "state", "policy", "messages", "rows", "pending", "behind", "resyncs")
    for s in now["subscriptions"]:
        if name is None or s["object"].lower() == name.lower():
            table.add_row(
                str(s["id"]),
                Text(s["name"] or ""),
                Text(s["object"]),
                s["state"],
                s["policy"],
                str(s["messages"]),
                str(s["rows"]),
                str(s["pending_messages"]),
                "yes" if s["behind"] else "",
                str(s["resyncs"]),
            )
    return table
