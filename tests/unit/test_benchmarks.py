"""What the benchmarks report about their competitors, without running one."""

from __future__ import annotations

import io

import pytest
from benchmarks import table
from benchmarks.nexmark import by_hand, flink_sql
from benchmarks.nexmark.queries import BY_NAME, QUERIES
from benchmarks.nexmark.rows import input_of
from benchmarks.summary import line
from benchmarks.work import FLINK, PENSTOCK, SPARK, Against, Row
from benchmarks.works import WORKS
from rich.console import Console


def test_every_nexmark_query_is_run_or_said_to_be_impossible() -> None:
    for forms, refused in ((by_hand.BY_HAND, by_hand.WHY_NOT), (flink_sql.QUERIES, flink_sql.WHY_NOT)):
        assert sorted([*forms, *refused]) == sorted(BY_NAME)


def test_a_bar_against_spark_is_set_where_spark_can_run_the_query() -> None:
    work = next(w for w in WORKS if w.name == "nexmark")
    barred = {row.figure for row in work.rows if row.bars == (Against(SPARK, 0.9),)}
    assert barred == set(by_hand.BY_HAND)


def test_a_query_is_given_the_rows_of_its_sources_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.nexmark.rows.events_of", lambda name: 100_000)
    by_sources = {frozenset(q.reads): q for q in QUERIES}
    for query in by_sources.values():
        given = input_of(query, quick=True)
        assert {source for source, _ in given.batches} == set(query.reads) - {"side_input"}
        assert given.rows == sum(batch.num_rows for _, batch in given.batches) > 0


def test_the_table_tells_refused_from_missing() -> None:
    row = Row("q9", "q9", "M rows/s", refused={SPARK: "a ranking"})
    out = io.StringIO()
    console = Console(file=out, width=170)
    table.show([line("nexmark", row, {PENSTOCK: [2e6]}, {FLINK: "cannot be installed"})], console, quick=False)
    said = out.getvalue()
    assert "2 M rows/s" in said
    assert "none" in said
    assert "Flink, nexmark: cannot be installed" in said
    assert "Spark by hand cannot run q9: a ranking" in said
    assert "LaminarDB" not in said
