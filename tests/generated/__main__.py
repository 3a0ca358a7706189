"""Generated cases by hand: one case again (`--seed N --case K`), made smaller (`--shrink`), or many seeds (`--groups M`)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from tests.generated.cases import Case, Group
from tests.generated.queries import Select
from tests.generated.reproduce import described
from tests.generated.running import Failure, Report, Running, before_the_end, every_commit
from tests.generated.sessions import DATABASE
from tests.generated.shrinking import shrink
from tests.generated.traces import Commit

import penstock

_OPTIONS: dict[str, Any] = {"master": "local[2]", "config": {"spark.heap": "2g", **DATABASE}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--groups", type=int, default=1, help="how many seeds, from this one on")
    parser.add_argument("--cases", type=int, default=25, help="cases of each seed")
    parser.add_argument("--case", type=int, action="append", help="these cases alone")
    parser.add_argument("--changes", type=int, default=1, help="commits between the load and the end")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no further seed after this long")
    parser.add_argument("--restart", type=int, help="close and open the database after this commit")
    parser.add_argument("--empty-first", action="store_true", help="begin with a commit without rows")
    parser.add_argument("--spark", action="store_true", help="ask Spark batch after every commit")
    parser.add_argument("--shrink", action="store_true", help="make failing cases smaller")
    given = parser.parse_args()
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    total = Report()
    begin = time.monotonic()
    with penstock.open(**_OPTIONS) as first:
        for seed in range(given.seed, given.seed + given.groups):
            if time.monotonic() - begin > given.minutes * 60:
                break
            group = Group(seed, given.changes)
            report = _run(given, first, group)
            total.add(report)
            for failure in report.failures:
                print(described(group, failure), flush=True)
                if given.shrink:
                    print(_shrunk(first, group, failure), flush=True)
    print(total.summary())
    return 1 if total.failures else 0


@contextmanager
def _running(first: penstock.Database, group: Group, trace: Sequence[Commit] | None = None) -> Iterator[Running]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        running = Running(lambda: penstock.open(folder, **_OPTIONS), first.spark, group, trace)
        try:
            yield running
        finally:
            running.db.close()


def _cpu() -> float:
    """Seconds of CPU that this process and its JVM have had."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(p.cpu_times()[:2]) for p in processes)


def _run(given: argparse.Namespace, first: penstock.Database, group: Group) -> Report:
    start, cpu = time.monotonic(), _cpu()
    with _running(first, group) as running:
        if given.case:
            running.create((group.case(k) for k in given.case), len(given.case))
        else:
            running.create(group.cases(), given.cases)
        made = time.monotonic() - start
        report = running.run(every_commit if given.spark else before_the_end, given.restart, given.empty_first)
    took = time.monotonic() - start
    print(
        f"seed {group.seed}, {made:.0f} + {took - made:.0f} s, {_cpu() - cpu:.0f} s CPU: {report.summary()}", flush=True
    )
    for why, sql in [*report.replaced, *report.refusals]:
        print(f"refused: {why}\n    {sql}", flush=True)
    return report


def _shrunk(first: penstock.Database, group: Group, failure: Failure) -> str:
    def fails(sql: str, trace: Sequence[Commit]) -> bool:
        case = Case(failure.case.number, Select(sql, (), failure.case.select.duck))
        with _running(first, group, trace) as running:
            if not running.measurable(case):
                return False
            running.create([case], 1)
            report = running.run(every_commit, empty_first=True)
        return any(f.kind == failure.kind for f in report.failures)

    sql, trace = shrink(failure.case.select.sql, group.trace[: failure.commit + 1] or group.trace, fails)
    small = Failure(Case(failure.case.number, Select(sql, ())), len(trace) - 1, failure.kind, "made smaller")
    return described(group, small, trace)


if __name__ == "__main__":
    sys.exit(main())
