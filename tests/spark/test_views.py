"""The host of views: the unit tests of its origin, with the same counts, on Spark."""

from __future__ import annotations

import penstock
from penstock.views import CompiledPlan, PersistentHost, compile_plan, snapshot_run

TOP = """
WITH per_category AS (
    SELECT category_id, COUNT(*) AS n, SUM(value) AS total FROM events GROUP BY category_id
)
SELECT category_id, n, total FROM per_category ORDER BY total DESC LIMIT 8
"""


def top(db: penstock.Database) -> CompiledPlan:
    return compile_plan(db, TOP, {"events": "id BIGINT, category_id BIGINT, value BIGINT"})


def test_snapshot_run_emits_aggregate_rows(db: penstock.Database) -> None:
    rows = [(1, 7, 100), (2, 7, 50), (3, 9, 20), (4, 9, 20), (5, 11, 5)]
    assert sorted(snapshot_run(top(db), {"events": rows})) == [(7, 2, 150), (9, 2, 40), (11, 1, 5)]


def test_persistent_host_emits_initial_and_diffs(db: penstock.Database) -> None:
    host = PersistentHost(db)
    initial = host.register_or_seed("top", top(db), {"events": [(1, 7, 100), (2, 7, 50), (3, 9, 20)]}, 1, 42)
    assert len(initial.rows) == 2
    deltas = host.push_table_diff("top", "events", (4, 9, 100), 1, 2)
    assert [(d.row, d.diff, d.lsn) for d in deltas] == [((9, 1, 20), -1, 2), ((9, 2, 120), 1, 2)]
    assert host.release("top", 42) == 0


def test_persistent_host_batch_coalesces(db: penstock.Database) -> None:
    host = PersistentHost(db)
    host.register_or_seed("batch", top(db), {"events": [(1, 7, 10)]}, 1, 7)
    deltas = host.push_table_batch("batch", [("events", (2, 7, 20), 1), ("events", (3, 7, 30), 1)], 2)
    assert len(deltas) == 2
    assert all(d.lsn == 2 for d in deltas)
    assert [(d.row, d.diff) for d in deltas] == [((7, 1, 10), -1), ((7, 3, 60), 1)]
    host.release("batch", 7)


def test_cached_view_attaches_late_subscriber_to_current_state(db: penstock.Database) -> None:
    host = PersistentHost(db)
    names = [s.name for s in db.status()]
    host.register_or_seed("shared", top(db), {"events": [(1, 7, 10)]}, 5, 1)
    applied = host.apply_and_fanout("shared", [("events", (2, 7, 20), 1)], 6)
    assert applied is not None and applied[1] == [1]
    cached = host.cached_view("shared", 2)
    assert cached is not None
    assert cached.lsn == 6
    assert any(row[2] == 30 for row in cached.rows)
    assert host.subscribers("shared") == [1, 2]
    assert host.release("shared", 1) == 1
    assert host.subscribers("shared") is not None
    assert host.release("shared", 2) == 0
    assert host.subscribers("shared") is None
    assert [s.name for s in db.status()] == names and len(db.sql("SHOW QUERIES")) == 0
