"""What the benchmarks report about their competitors, without running one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from benchmarks import figures, table
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
    barred = {row.figure for row in work.rows if row.bars == (Against(SPARK, 1.0),)}
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


def test_the_documentation_has_the_figures_that_are_kept() -> None:
    """`make docs` writes them."""
    assert figures.PAGE.read_text() == figures.page(figures.PAGE.read_text(), figures.read())
    assert set(figures.read()) <= {w.name for w in WORKS}


def test_a_run_replaces_the_figures_of_its_works(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    works = {w.name: w for w in WORKS}
    run = {"when": "2026-01-02T03:04:05+00:00", "load_before": 0.25}
    figures.keep(
        works["window"], {PENSTOCK: {"rows_per_s": [2e6, 3e6, 4e6]}, SPARK: {"rows_per_s": [2e6]}}, {}, run, path
    )
    figures.keep(works["select"], {PENSTOCK: {"p50": [25.0]}}, {}, run, path)
    figures.keep(works["select"], {PENSTOCK: {"p50": [2.5]}}, {}, {**run, "load_before": 3}, path)
    kept = figures.read(path)
    assert list(kept) == ["window", "select"], "in the order in which they are run"
    rows = figures.table(kept).splitlines()
    assert rows[0] == "| what | Penstock | Spark by hand | bar | met | measured |"
    assert "3 M rows/s (2 – 4)" in rows[2] and "2026-01-02, load 0.25" in rows[2]
    assert "2.5 ms" in rows[-1] and "load 3" in rows[-1]
