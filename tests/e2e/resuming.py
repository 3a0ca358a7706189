"""A reader of live views whose database is killed: `python -m tests.e2e.resuming folder`. It prints one JSON object per line.

The first run follows a table, a view and a query, then writes what it does not read, and waits to be killed. The second run continues after the LSNs that
the first has seen, which it reads from standard input.
"""

from __future__ import annotations

import json
import sys
import time

import penstock

CONFIG = {"spark.heap": "512m"}
SOON_S = 120.0
TARGETS = ("t", "m", "SELECT k, count(*) AS n FROM t GROUP BY k")


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def fold(change: penstock.Change, have: dict[str, int]) -> None:
    if change.kind != "changes":
        have.clear()
    for row in change.rows():
        weight = row.pop("__weight")
        key = json.dumps(row, sort_keys=True)
        have[key] = have.get(key, 0) + weight
        if not have[key]:
            del have[key]


def follow(folder: str) -> None:
    with penstock.open(folder, master="local[2]", config=CONFIG) as db:
        db.execute("CREATE TABLE t (k BIGINT, v BIGINT); CREATE TABLE u (k BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW m AS SELECT k, sum(v) AS v FROM t GROUP BY k")
        db.insert("t", [(1, 10), (2, 20)])
        db.flush(SOON_S)
        seen = {}
        for target in TARGETS:
            sub = db.subscribe(target, snapshot=True)
            have: dict[str, int] = {}
            change = sub.next(SOON_S)
            assert change is not None
            fold(change, have)
            seen[target] = {"lsn": change.lsn, "rows": have}
        db.insert("t", [(1, 1), (3, 30)])
        db.insert("t", [(2, 2)])
        db.flush(SOON_S)
        say(seen=seen)
        time.sleep(SOON_S)  # until it is killed


def resume(folder: str) -> None:
    seen = json.loads(sys.stdin.readline())
    with penstock.open(folder, master="local[2]", config=CONFIG) as db:
        db.flush(SOON_S)
        for target in TARGETS:
            have, at = seen[target]["rows"], seen[target]["lsn"]
            gaps = 0
            changes = list(db.subscribe(target, as_of_lsn=at, up_to_lsn=db.insert("u", [(0,)])))
            for change in changes:
                gaps += change.kind == "changes" and change.prev_lsn != at
                at = change.lsn
                fold(change, have)
            kinds = [c.kind for c in changes]
            want: dict[str, int] = {}
            for row in db.sql(target if not target.isalpha() else f"SELECT * FROM {target}").arrow().to_pylist():
                key = json.dumps(row, sort_keys=True)
                want[key] = want.get(key, 0) + 1
            say(target=target, kinds=kinds, gaps=gaps, have=have, want=want)


if __name__ == "__main__":
    (resume if len(sys.argv) > 2 else follow)(sys.argv[1])
