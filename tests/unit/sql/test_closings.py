"""Which queries emit only closed windows, and when those close."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import DDL, Catalog

from penstock.plan.closings import Closing, closings

COUNT = "SELECT k, window_end, count(*) AS n FROM s GROUP BY k,"
CLOSE = "EMIT ON WINDOW CLOSE"


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (f"{COUNT} TUMBLE(ts, INTERVAL '10' SECOND) {CLOSE}", {(10_000, 0)}),
        (f"{COUNT} TUMBLE(ts, INTERVAL '10' SECOND, INTERVAL '3' SECOND) {CLOSE}", {(10_000, 3_000)}),
        (f"{COUNT} HOP(ts, INTERVAL '4' SECOND, INTERVAL '10' SECOND) {CLOSE}", {(4_000, 2_000)}),
        (f"{COUNT} CUMULATE(ts, INTERVAL '2' SECOND, INTERVAL '10' SECOND) {CLOSE}", {(2_000, 0)}),
        (f"{COUNT} TUMBLE(ts, INTERVAL '10' SECOND) ALLOW LATENESS INTERVAL '1' SECOND {CLOSE}", {(10_000, 1_000)}),
        # A ranking of closed windows emits when they close.
        (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY n DESC) AS rn FROM "
            f"({COUNT} TUMBLE(ts, INTERVAL '1' SECOND)) x) y WHERE rn <= 2 {CLOSE}",
            {(1_000, 0)},
        ),
        (f"{COUNT} TUMBLE(ts, INTERVAL '1' SECOND) EMIT CHANGES", set()),
        (f"{COUNT} TUMBLE(ts, INTERVAL '1' MONTH) {CLOSE}", set()),
        (
            "SELECT k, window_end, count(*) AS n FROM s GROUP BY k, SESSION(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE",
            set(),
        ),
        ("SELECT k, v FROM s WHERE v > 1", set()),
        ("SELECT k, sum(v) AS v FROM s GROUP BY k", set()),
    ],
)
def test_closings(select: str, expected: set[tuple[int, int]]) -> None:
    plan = Catalog(DDL).plan(f"CREATE STREAM q AS {select}")
    assert closings(plan) == {Closing(*c) for c in expected}
