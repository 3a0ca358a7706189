"""What a subscriber is promised, and the tests and benchmarks that show it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROMISES: dict[str, tuple[str, ...]] = {
    "snapshot plus changes equals the batch query at every LSN": (
        "tests/unit/runtime/test_live_views.py::TestLiveViews",
        "tests/spark/test_live_views.py::test_every_reader_has_the_batch_result_after_every_commit",
        "tests/spark/test_generated_queries.py::test_views_equal_batch_after_every_commit",
        "tests/long/test_generated_queries.py::test_views_equal_batch_after_every_commit",
    ),
    "a late joiner gets an exact timeline": (
        "tests/unit/serve/test_hub.py::test_late_joiners_under_a_writer_that_never_stops",
        "tests/unit/serve/test_hub.py::test_what_is_published_while_contents_are_read_comes_after_them",
        "tests/unit/serve/test_sharing.py::test_a_reader_attaches_between_the_two_steps_of_a_publisher",
        "tests/unit/runtime/test_interleavings.py::test_a_late_joiner_gets_every_delta_after_its_lsn_and_none_before",
    ),
    "threads that subscribe first at once build one plan": (
        "tests/unit/runtime/test_subscriptions.py::test_many_that_subscribe_first_at_once_build_one_query",
        "tests/unit/runtime/test_interleavings.py::test_cold_starts_beside_a_writer",
        "tests/unit/runtime/test_interleavings.py::test_whoever_loses_a_cold_start_gets_the_rows_and_the_lsn_of_the_winner",
    ),
    "release and resubscribe loses and repeats nothing": (
        "tests/unit/serve/test_hub.py::test_release_and_resubscribe_loses_and_repeats_nothing",
        "tests/unit/runtime/test_subscriptions.py::test_release_and_resubscribe_loses_and_repeats_nothing",
        "tests/unit/runtime/test_interleavings.py::test_the_last_reader_leaves_while_another_one_comes",
        "tests/unit/runtime/test_interleavings.py::test_a_plan_that_is_released_while_somebody_joins_is_there_or_is_built_anew",
    ),
    "an epoch costs what its diff costs": ("benchmarks/works/ratios.py::WORK",),
    "so do extremes and top-N": ("benchmarks/works/ratios.py::WORK",),
    "outputs are consolidated; no net change, no message": (
        "tests/unit/serve/test_hub.py::test_no_net_change_no_message",
        "tests/unit/serve/test_falling_behind.py::test_changes_that_cancel_out_altogether_make_no_message",
        "tests/unit/serve/test_envelope.py::test_consolidate_sums_equal_rows",
    ),
    "a commit is never seen in part; messages chain without gap": (
        "tests/spark/test_api.py::test_a_transaction_is_one_commit_in_every_view",
        "tests/unit/runtime/test_live_views.py::TestLiveViews",
    ),
    "an idle view sends progress": ("tests/unit/serve/test_hub.py::test_an_idle_object_sends_progress",),
    "resume replays what was missed, or is a resync": (
        "tests/e2e/test_resuming.py::test_readers_continue_after_the_lsn_that_they_have_seen",
        "tests/unit/runtime/test_subscriptions.py::test_a_reader_continues_after_the_lsn_that_it_has_seen",
        "tests/unit/runtime/test_subscriptions.py::test_where_history_is_gone_the_answer_is_resync",
        "tests/unit/runtime/test_subscriptions.py::test_a_group_in_sql_ends_at_an_lsn_and_resumes_after_one",
    ),
    "a slow subscriber holds up nobody": (
        "tests/unit/serve/test_falling_behind.py::test_nobody_waits_for_a_reader_that_does_not_read",
        "tests/unit/serve/test_falling_behind.py::test_many_stalled_readers_hold_up_nobody",
        "tests/unit/serve/test_sharing.py::test_a_reader_that_does_not_read_keeps_no_more_than_its_limits",
        "tests/spark/test_slow_subscribers.py::test_nobody_waits_for_a_subscriber_that_does_not_read",
        "benchmarks/works/subscribers.py::WORK",
    ),
    "queries that mean the same share a plan, and subscribers an encoding": (
        "tests/unit/runtime/test_subscriptions.py::test_queries_that_mean_the_same_are_one",
        "tests/unit/runtime/test_subscriptions.py::test_one_condition_is_evaluated_once_for_all_readers",
        "tests/unit/runtime/test_subscriptions.py::test_a_condition_that_the_store_cannot_evaluate_is_one_query_for_all",
        "tests/unit/serve/test_hub.py::test_one_table_is_shared_by_all",
        "benchmarks/works/subscribers.py::WORK",
    ),
    "AS OF, UP TO, snapshots and envelopes": (
        "tests/unit/serve/test_hub.py::test_as_of_and_up_to",
        "tests/unit/runtime/test_subscriptions.py::test_contents_as_of_an_lsn",
        "tests/unit/serve/test_envelope.py::test_debezium_pairs_old_and_new_by_key",
        "tests/spark/test_api.py::test_envelopes",
    ),
    "a group is delivered at one LSN": (
        "tests/unit/runtime/test_subscriptions.py::test_what_holds_between_the_members_of_a_group_holds_after_every_message",
    ),
    "row rules are part of the plan": (
        "tests/unit/runtime/test_rules.py::test_the_query_of_a_subscription_reads_visible_rows_only",
        "tests/unit/runtime/test_rules.py::test_a_row_that_becomes_visible_or_invisible_is_inserted_or_retracted",
        "tests/unit/runtime/test_rules.py::test_what_cannot_be_ruled_is_refused",
    ),
    "after the last release everything is as it was": ("tests/long/test_leaks.py::test_nothing_is_left_behind",),
    "what cannot be maintained is refused; EXPLAIN shows state and cost": (
        "tests/spark/test_refusals.py::test_bad_statements",
        "tests/spark/test_explain.py::test_the_plans_of_all_operators",
    ),
}


def test_there_are_seventeen() -> None:
    assert len(PROMISES) == 17


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_is_shown_by_what_there_is(promise: str) -> None:
    for shown in PROMISES[promise]:
        file, name = shown.split("::")
        text = (ROOT / file).read_text()
        assert f"def {name}(" in text or f"\n{name} = " in text, shown
