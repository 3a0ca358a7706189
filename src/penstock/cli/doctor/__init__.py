"""`penstock doctor`: checks the installation and says how to fix problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from penstock.cli import console
from penstock.cli.doctor import machine, software
from penstock.cli.doctor.check import Check

__all__ = ["run_doctor"]


def run_doctor(folder: Path | None, *, quick: bool) -> int:
    """Run the checks and print their table. Returns 1 if a check failed."""
    checks = list(_checks(folder or Path.cwd(), quick=quick))
    console.out().print(report(checks))
    failed = [c.name for c in checks if c.ok is False]
    if failed:
        console.out().print(
            Text(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}.", style="bold red")
        )
        return 1
    console.out().print(Text("All checks passed.", style="green"))
    return 0


def report(checks: list[Check]) -> Table:
    """The table that is printed."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in ("", "check", "found", "what to do"):
        table.add_column(name, overflow="fold")
    marks = {True: Text("ok", style="green"), False: Text("fail", style="bold red"), None: Text("–", style="dim")}
    for check in checks:
        table.add_row(marks[check.ok], Text(check.name), Text(check.found), Text(check.advice, style="yellow"))
    return table


def _checks(folder: Path, *, quick: bool) -> Iterator[Check]:
    first: list[Callable[[], Check]] = [
        software.check_python,
        software.check_java,
        lambda: software.check_javac(needed=software.kernel_jar() is None),
        software.check_pyspark,
        software.check_kernel,
        machine.check_memory,
        lambda: machine.check_disk(folder),
        lambda: machine.check_sync(folder),
    ]
    good = True
    for check in first:
        outcome = check()
        good = good and outcome.ok is not False
        yield outcome
    if quick:
        return
    if not good:
        yield Check("pipeline", None, "skipped: fix the failures above first")
        return
    from penstock.cli.doctor.pipeline import check_pipeline

    yield check_pipeline()
