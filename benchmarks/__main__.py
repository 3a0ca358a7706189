"""`python -m benchmarks [--quick] [--only NAME …]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import figures, isolate, picture, report, table
from benchmarks.peer import PEERS
from benchmarks.summary import Line, number
from benchmarks.work import PENSTOCK, TITLES, Row, Work
from benchmarks.works import WORKS

RESULTS = Path(__file__).resolve().parent / "results"

# A table in a file or a log need not fit a window.
FILE_WIDTH = 170

Samples = dict[str, dict[str, list[float]]]
"""Samples by competitor and figure."""


class Run:
    """The works one after the other, their competitors in turn."""

    def __init__(self, *, quick: bool, repeats: int | None, competitors: Sequence[str], console: Console) -> None:
        self._quick = quick
        self._repeats = repeats
        self._competitors = competitors
        self._console = console
        self._pythons: dict[str, str | None] = {}
        self.peers: dict[str, str] = dict.fromkeys(PEERS, "left out")

    def work(self, work: Work) -> tuple[Samples, dict[str, str]]:
        """All samples, and why a competitor has none."""
        samples: Samples = {}
        missing: dict[str, str] = {}
        repeats = self._repeats or (1 if self._quick else work.repeats)
        for number_ in range(1, repeats + 1):
            for competitor in work.programs:
                if competitor in missing or competitor not in self._competitors:
                    continue
                python = self._interpreter(competitor)
                if python is None:
                    missing[competitor] = self.peers[competitor]
                    continue
                began = time.monotonic()
                outcome = isolate.run(python, work.name, competitor, quick=self._quick, timeout_s=work.timeout_s)
                took = time.monotonic() - began
                if outcome.error is not None:
                    missing[competitor] = outcome.error
                for figure, values in outcome.figures.items():
                    samples.setdefault(competitor, {}).setdefault(figure, []).extend(values)
                said = outcome.error or _brief(work.rows, outcome.figures)
                head = f"{work.name} {number_}/{repeats} {TITLES[competitor]} ({took:.0f} s): "
                self._console.print(head + said, markup=False, highlight=False, soft_wrap=True)
        return samples, missing

    def _interpreter(self, competitor: str) -> str | None:
        """The Python that has a competitor, looked for when it is first needed; None, and `peers` says why."""
        if competitor not in PEERS:
            return sys.executable
        if competitor not in self._pythons:
            self._pythons[competitor], self.peers[competitor] = PEERS[competitor].interpreter()
        return self._pythons[competitor]


def _brief(rows: Sequence[Row], figures: dict[str, list[float]]) -> str:
    shown = [r for r in rows if r.figure in figures]
    return "; ".join(f"{r.figure} {', '.join(number(v, r) for v in figures[r.figure])} {r.unit}" for r in shown)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, one process each: does it run, roughly how fast"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[w.name for w in WORKS], help="only these works")
    parser.add_argument("--against", nargs="*", metavar="WHO", choices=list(TITLES), help="only these competitors")
    parser.add_argument("--repeats", type=int, help="processes for each competitor")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where latest.json and latest.png go")
    given = parser.parse_args(arguments)
    # As Ctrl-C does: the child that runs, and its JVM, are ended with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    load = os.getloadavg()[0]
    if load > 0.5 * (os.cpu_count() or 1):
        console.print(f"The machine is busy (load {load:.1f}): times will be too long, and ratios uncertain.")
    competitors = list(TITLES) if given.against is None else given.against
    run = Run(quick=given.quick, repeats=given.repeats, competitors=competitors, console=console)
    samples: dict[str, Samples] = {}
    lines: list[Line] = []
    failed = False
    for work in WORKS:
        if given.only and work.name not in given.only:
            continue
        of_work, missing = run.work(work)
        samples[work.name] = of_work
        failed = failed or any(who not in PEERS for who in missing)
        lines += figures.lines_of(work, of_work, missing)
        if not given.quick and PENSTOCK not in missing and set(work.programs) <= set(competitors):
            about = report.about(load=load, peers=run.peers)
            figures.keep(work, of_work, missing, about, given.results / figures.KEPT.name)
    if given.results == RESULTS:
        figures.write_page()
    table.show(lines, console, quick=given.quick)
    about = report.about(load=load, peers=run.peers)
    report.write(given.results / "latest.json", lines, samples, about, quick=given.quick)
    note = f"{os.cpu_count()} cores; medians with the smallest and largest sample; dashed: the bar; the arrow points to better"
    picture.draw(given.results / "latest.png", lines, note=note + ("; small sizes" if given.quick else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
