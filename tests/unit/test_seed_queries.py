"""The tests that a streaming query was specified with, in their seven groups, and ours that have their place."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
UNIT, SPARK = "unit/runtime/test_queries.py", "spark/test_streaming_queries.py"

REFUSED = f"{UNIT}::test_what_cannot_run_is_refused_when_it_is_compiled"
TEN = f"{SPARK}::test_representative_queries"
CLOSES = f"{SPARK}::test_windows_are_emitted_when_the_watermark_passes_their_end_and_not_before"
PLAIN = f"{SPARK}::test_the_results_are_the_same_without_generated_code"

GROUPS: dict[str, tuple[int, dict[str, str]]] = {
    "compile": (
        8,
        {
            "a simple query": f"{UNIT}::test_metadata_has_the_time_of_every_phase_and_the_pipelines",
            "a complex query": f"{UNIT}::test_a_join_has_a_pipeline_for_each_input",
            "code generation on": f"{UNIT}::test_metadata_has_the_time_of_every_phase_and_the_pipelines",
            "code generation off": f"{UNIT}::test_without_code_generation_every_pipeline_is_a_fallback_with_its_reason",
            "invalid SQL": REFUSED,
            "an unknown column or source": REFUSED,
            "a configuration that cannot be met": f"{UNIT}::test_a_configuration_that_cannot_be_met_is_refused",
            "the same query again": f"{UNIT}::test_queries_that_mean_the_same_have_one_id_and_one_entry_in_the_cache",
        },
    ),
    "submit": (
        10,
        {
            "one event": f"{UNIT}::test_a_row_rows_or_a_batch",
            "a batch": f"{UNIT}::test_a_row_rows_or_a_batch",
            "the batch policy": f"{UNIT}::test_rows_become_commits_by_the_batch_policy",
            "a filter passes or drops": f"{SPARK}::test_figures_are_those_of_the_rows",
            "a projection": TEN,
            "keys are extracted": TEN,
            "several sources": f"{UNIT}::test_several_sources_are_named",
            "an invalid row": f"{UNIT}::test_an_invalid_row_is_refused_and_the_others_are_not",
            "backpressure": f"{UNIT}::test_a_query_that_is_behind_drops_refuses_or_waits",
            "not in this state": f"{UNIT}::test_illegal_steps_name_the_state",
        },
    ),
    "poll_output": (
        8,
        {
            "nothing yet": CLOSES,
            "a window is emitted": CLOSES,
            "driven by the watermark": CLOSES,
            "checkpoint": CLOSES,
            "the end of input flushes": TEN,
            "pause and resume": f"{UNIT}::test_what_was_submitted_before_a_pause_is_processed_after_it",
            "an error of the query": f"{SPARK}::test_a_failing_row_is_an_error_of_its_query_alone",
            "rows of another query": f"{UNIT}::test_rows_of_a_query_are_its_own",
        },
    ),
    "hot swap": (
        4,
        {
            "a compatible version": f"{UNIT}::test_rows_before_the_swap_are_of_the_old_version_and_later_ones_of_the_new",
            "an incompatible schema": f"{UNIT}::test_a_version_that_cannot_take_over_is_refused_and_the_old_one_runs_on",
            "state is transferred": f"{SPARK}::test_a_version_with_other_aggregates_has_seen_all_rows",
            "events meanwhile": f"{UNIT}::test_submitting_during_swaps_loses_and_repeats_nothing",
        },
    ),
    "observability": (
        4,
        {
            "figures are accurate": f"{SPARK}::test_figures_are_those_of_the_rows",
            "compilation is timed": f"{UNIT}::test_metadata_has_the_time_of_every_phase_and_the_pipelines",
            "before and behind the bridge": f"{UNIT}::test_figures_add_up",
            "the hit rate of the cache": f"{UNIT}::test_queries_that_mean_the_same_have_one_id_and_one_entry_in_the_cache",
        },
    ),
    "end to end": (10, {f"query {n}": TEN for n in range(1, 11)}),
    "fallback": (
        4,
        {
            "a pipeline that cannot be compiled": f"{UNIT}::test_a_python_function_is_a_fallback",
            "partial compilation": f"{UNIT}::test_a_python_function_is_a_fallback",
            "switched off": f"{UNIT}::test_without_code_generation_every_pipeline_is_a_fallback_with_its_reason",
            "the same results": PLAIN,
        },
    ),
}


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((TESTS / path).read_text())


@pytest.mark.parametrize("group", GROUPS)
def test_every_case_has_a_test(group: str) -> None:
    number, cases = GROUPS[group]
    assert len(cases) == number
    for case, place in cases.items():
        path, _, name = place.partition("::")
        have = {n.name for n in _tree(path).body if isinstance(n, ast.FunctionDef)}
        assert name in have, f"{case}: {place} does not exist"


def test_there_are_ten_representative_queries() -> None:
    (found,) = [
        n.value
        for n in _tree(SPARK).body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and n.target.id == "QUERIES"
    ]
    assert isinstance(found, ast.Dict) and len(found.keys) >= 10
    assert sum(number for number, _ in GROUPS.values()) == 48
