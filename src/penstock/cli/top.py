"""`penstock top`: the figures of a database that another process has open."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.failure import FAILED
from penstock.runtime.logs import status_file

_LOOK_S = 0.5
_OLD_S = 10.0
"""A file of this age belongs to a process that was killed."""

Facts = Mapping[str, Any]


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
    if once:
        console.print(screen(now, None, sort, name))
        return 0
    with Live(screen(now, None, sort, name), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(_LOOK_S)
            found = read(path)
            if found is None:
                return 0
            if found["time"] != now["time"]:
                before, now = now, found
            live.update(screen(now, before, sort, name), refresh=True)


def read(path: Path) -> Facts | None:
    """What the file says; None if the database is not open."""
    try:
        facts: Facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return facts if time.time() - facts["time"] < _OLD_S else None


def screen(now: Facts, before: Facts | None, sort: str, name: str | None) -> Group:
    up = int(now["time"] - now["opened"])
    head = Text(
        f"{now['state']}, up {up // 3600}:{up // 60 % 60:02}:{up % 60:02}, LSN {now['lsn']}, log {now['log_bytes'] / 1e6:.1f} MB"
    )
    if name is not None:
        one = next((o for o in now["objects"] if o["name"].lower() == name.lower()), None)
        return Group(head, Text(f"{name} was dropped") if one is None else _detail(one), _subscriptions(now, name))
    return Group(head, _objects(now, before, sort), _subscriptions(now, None))


def _objects(now: Facts, before: Facts | None, sort: str) -> Table:
    table = Table(
        "object", "kind", "state", "rows", "rows/s", "lag ms", "late", "state rows", "state MB", "subscribers", "error"
    )
    old = {o["name"]: o["rows"] for o in before["objects"]} if before is not None else {}
    seconds = now["time"] - before["time"] if before is not None else 0.0
    rows = [
        o | {"rate": (o["rows"] - old[o["name"]]) / seconds if o["name"] in old and seconds > 0 else 0.0}
        for o in now["objects"]
    ]
    rows.sort(key=lambda o: o[sort] if sort == "name" else -o[sort])
    for o in rows:
        table.add_row(
            o["name"],
            o["kind"],
            o["state"],
            str(o["rows"]),
            f"{o['rate']:.0f}",
            str(o["lag_ms"]),
            str(o["late_rows"]),
            str(o["state_rows"]),
            f"{o['state_bytes'] / 1e6:.1f}",
            str(o["subscribers"]),
            Text(o["error"] or o["warning"] or ""),
        )
    return table


def _detail(one: Facts) -> Table:
    """All figures of one object, and of each operator of its query."""
    table = Table("figure", "value")
    for key, value in one.items():
        if key != "operators" and value is not None:
            table.add_row(key.replace("_", " "), Text(str(value)))
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
