"""Whether Flink and Penstock give the same rows: `python -m benchmarks.nexmark.agree [q4 …]`, at the small size.

It compares what the result has in the end. q12 is left out, because its windows follow the clock, and q6, which Flink refuses.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from benchmarks.nexmark import flink_sql
from benchmarks.nexmark.queries import BY_NAME, create
from benchmarks.nexmark.rows import input_of, side_input

LEFT_OUT = ("q12",)
DIGITS = 12
"""Sums of doubles are added up in another order."""

Rows = Counter[tuple[object, ...]]


def plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    if isinstance(value, float | Decimal):
        return f"{float(value):.{DIGITS}g}"
    return value


def of_flink(name: str) -> Rows:
    from benchmarks.works.nexmark import flink_with

    with tempfile.TemporaryDirectory(prefix="flink-bench-") as folder:
        query = BY_NAME[name]
        engine = flink_with(Path(folder), query, input_of(query, quick=True))
        rows: Rows = Counter()
        for kind, row in engine.changes(flink_sql.QUERIES[name]):
            rows[tuple(map(plain, row))] += kind
        return +rows


def of_penstock(names: list[str]) -> dict[str, Rows]:
    from benchmarks.engines import penstock

    found: dict[str, Rows] = {}
    with penstock.opened() as db:
        for name in names:
            query = BY_NAME[name]
            for source in query.reads:
                db.execute(create(source))
            if "side_input" in query.reads:
                db.insert("side_input", side_input())
            db.execute(query.create("MATERIALIZED VIEW"))
            for source, batch in input_of(query, quick=True).batches:
                db.insert(source, batch)
            db.flush(timeout=120)
            found[name] = Counter(tuple(map(plain, row)) for row in db.sql(f"SELECT * FROM {name}").fetchall())
            for source in query.reads:
                db.execute(f"DROP {'LOOKUP TABLE' if source == 'side_input' else 'SOURCE'} {source} CASCADE")
    return found


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--flink"]:
        Path(arguments[2]).write_bytes(pickle.dumps(of_flink(arguments[1])))
        return 0
    from benchmarks.peer import PEERS
    from benchmarks.work import FLINK

    names = arguments or [name for name in flink_sql.QUERIES if name not in LEFT_OUT]
    python, why = PEERS[FLINK].interpreter()
    if python is None:
        print(f"Flink {why}")
        return 1
    ours = of_penstock(names)
    differing = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "rows"
            subprocess.run([python, "-m", "benchmarks.nexmark.agree", "--flink", name, str(answer)], check=True)
            theirs: Rows = pickle.loads(answer.read_bytes())
        only, missing = ours[name] - theirs, theirs - ours[name]
        differing += bool(only or missing)
        print(
            f"{name}: {ours[name].total()} rows; {only.total()} only here, {missing.total()} only in Flink", flush=True
        )
        for where, rows in (("here", only), ("Flink", missing)):
            for row in sorted(rows, key=str)[:3]:
                print(f"  {where}: {row}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
