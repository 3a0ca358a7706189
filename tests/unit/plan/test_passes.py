"""Each pass on small plans made by hand: before and after, as EXPLAIN shows them."""

from __future__ import annotations

import sqlglot

from penstock.plan.dialect import DIALECT
from penstock.plan.explain import describe, explain
from penstock.plan.nodes import (
    AggCall,
    Aggregate,
    Analytic,
    Expr,
    Filter,
    Join,
    Named,
    Node,
    Project,
    Query,
    Scan,
    SetOp,
    SortKey,
    TopN,
    Union,
    WindowCall,
    col,
)
from penstock.plan.passes import PASSES, run_passes
from penstock.plan.passes.projects import merge_projects
from penstock.plan.passes.prune import prune_columns
from penstock.plan.passes.pushdown import push_filters
from penstock.plan.passes.ranks import rank_filters


def scan(name: str, *columns: str, changelog: bool = False, types: str = "") -> Scan:
    named = tuple((f"{name}${c}", t) for c, t in zip(columns, types.split(), strict=False))
    return Scan(name, 1, tuple((f"{name}${c}", c) for c in columns), changelog, types=named)


def expr(sql: str) -> Expr:
    return Expr(sqlglot.parse_one(sql, dialect=DIALECT))


def pick(child: Node, *names: str) -> Project:
    return Project(child, tuple(Named(n, col(n)) for n in names))


def tree(node: Node) -> list[str]:
    return [describe(n) for n in node.walk()]


A = scan("a", "k", "v", "x", types="string bigint bigint")
B = scan("b", "k", "w", "y", types="string bigint double")


def test_a_rank_filter_is_a_topn() -> None:
    ranked = Analytic(A, (col("a$k"),), (SortKey(col("a$v"), True, False),), (WindowCall("rn", "row_number", ()),))
    plan = Filter(pick(ranked, "a$k", "rn"), expr("`rn` <= 3 AND `a$k` = 'x'"))
    assert tree(rank_filters(plan))[:3] == [
        "Filter a$k = 'x' ±",
        "Project [a$k, rn] ±",
        "TopN by [a$k] order [a$v desc] limit 3 row_number → rn ±",
    ]


def test_a_rank_filter_from_below_keeps_its_condition() -> None:
    ranked = Analytic(A, (), (SortKey(col("a$v")),), (WindowCall("rn", "rank", ()),))
    found = rank_filters(Filter(ranked, expr("`rn` = 2")))
    assert isinstance(found, Filter) and isinstance(found.child, TopN) and found.child.limit == 2
    assert rank_filters(Filter(ranked, expr("`rn` > 2"))) == Filter(ranked, expr("`rn` > 2"))


def test_two_ranks_stay() -> None:
    calls = (WindowCall("rn", "row_number", ()), WindowCall("s", "sum", (col("a$v"),)))
    plan = Filter(Analytic(A, (), (SortKey(col("a$v")),), calls), expr("`rn` <= 2"))
    assert rank_filters(plan) is plan


def test_filters_reach_the_sides_of_an_inner_join() -> None:
    join = Join(A, B, "inner", (col("a$k"),), (col("b$k"),))
    assert tree(push_filters(Filter(join, expr("`a$v` > 1 AND `b$w` > 2 AND `a$x` = `b$y`")))) == [
        "Filter a$x = b$y",
        "Join inner on [a$k = b$k]",
        "Filter a$v > 1",
        "Scan a [a$k, a$v, a$x]",
        "Filter b$w > 2",
        "Scan b [b$k, b$w, b$y]",
    ]


def test_filters_on_the_nullable_side_of_an_outer_join_stay() -> None:
    join = Join(A, B, "left", (col("a$k"),), (col("b$k"),))
    assert tree(push_filters(Filter(join, expr("`b$w` IS NULL AND `a$v` > 1"))))[:3] == [
        "Filter b$w IS NULL ±",
        "Join left on [a$k = b$k] ±",
        "Filter a$v > 1",
    ]
    full = Join(A, B, "full", (col("a$k"),), (col("b$k"),))
    assert isinstance(push_filters(Filter(full, expr("`a$v` > 1"))), Filter)


def test_filters_on_keys_pass_an_aggregate_and_on_results_do_not() -> None:
    agg = Aggregate(A, (Named("a$k", col("a$k")),), (AggCall("n", "count", ()),))
    assert [t.split(" ")[0] for t in tree(push_filters(Filter(agg, expr("`a$k` = 'x' AND `n` > 1"))))] == [
        "Filter",
        "Aggregate",
        "Filter",
        "Scan",
    ]


def test_a_filter_is_copied_into_every_input_of_a_union() -> None:
    plan = Filter(Union((pick(A, "a$k"), pick(B, "b$k"))), expr("`a$k` = 'x'"))
    assert tree(push_filters(plan)) == [
        "Union all",
        "Project [a$k]",
        "Filter a$k = 'x'",
        "Scan a [a$k, a$v, a$x]",
        "Project [b$k]",
        "Filter b$k = 'x'",
        "Scan b [b$k, b$w, b$y]",
    ]


def test_a_filter_on_a_column_whose_types_differ_stays_above_a_union() -> None:
    plan = Filter(Union((pick(A, "a$k", "a$x"), pick(B, "b$k", "b$y"))), expr("`a$x` > 1 AND `a$k` = 'x'"))
    assert [t for t in tree(push_filters(plan)) if t.startswith("Filter")] == [
        "Filter a$x > 1",
        "Filter a$k = 'x'",
        "Filter b$k = 'x'",
    ]


def test_a_filter_on_a_computed_column_stays_above_it() -> None:
    plan = Filter(Project(A, (Named("z", expr("`a$v` + 1")),)), expr("`z` > 1"))
    assert push_filters(plan) == plan


def test_a_filter_on_a_computed_column_goes_below_it_where_that_spares_state() -> None:
    agg = Aggregate(A, (Named("u", expr("UPPER(`a$k`)")),), (AggCall("n", "count", ()),))
    plan = Filter(Project(agg, (Named("z", expr("CONCAT(`u`, 'x')")), Named("n", col("n")))), expr("`z` = 'Ax'"))
    assert tree(push_filters(plan))[1:] == [
        "Aggregate [count(*) AS n] by [UPPER(a$k) AS u] changes ±",
        "Filter CONCAT(UPPER(a$k), 'x') = 'Ax'",
        "Scan a [a$k, a$v, a$x]",
    ]
    chance = Filter(agg, expr("`u` > UUID()"))
    assert push_filters(chance) == chance


def test_a_filter_on_a_key_goes_to_both_sides_where_types_agree() -> None:
    left, right = scan("a", "k", types="string"), scan("b", "k", types="string")
    for kind in ("inner", "left", "semi", "anti"):
        join = Join(left, right, kind, (col("a$k"),), (col("b$k"),))  # type: ignore[arg-type]
        assert [t for t in tree(push_filters(Filter(join, expr("`a$k` = 'x'")))) if t.startswith("Filter")] == [
            "Filter a$k = 'x'",
            "Filter b$k = 'x'",
        ]
    other = Join(left, scan("b", "k", types="bigint"), "inner", (col("a$k"),), (col("b$k"),))
    assert tree(push_filters(Filter(other, expr("`a$k` = 'x'"))))[1:] == [
        "Filter a$k = 'x'",
        "Scan a [a$k]",
        "Scan b [b$k]",
    ]


def test_filters_reach_both_sides_of_a_set_operation() -> None:
    plan = Filter(SetOp("except", pick(A, "a$k"), pick(B, "b$k")), expr("`a$k` = 'x'"))
    assert [t for t in tree(push_filters(plan)) if t.startswith("Filter")] == ["Filter a$k = 'x'", "Filter b$k = 'x'"]


def test_what_only_a_filter_looks_at_is_not_kept() -> None:
    join = Join(Filter(A, expr("`a$x` > 1")), B, "inner", (col("a$k"),), (col("b$k"),))
    assert tree(prune_columns(pick(join, "a$v", "b$w")))[1:] == [
        "Join inner on [a$k = b$k]",
        "Project [a$k, a$v]",
        "Filter a$x > 1",
        "Scan a [a$k, a$v, a$x]",
        "Scan b [b$k, b$w]",
    ]
    top = TopN(Filter(A, expr("`a$x` > 1")), (), (SortKey(col("a$v")),), 3)
    assert tree(prune_columns(pick(top, "a$k")))[2] == "Project [a$k, a$v]"


def test_pruning_keeps_what_is_needed_and_nothing_else() -> None:
    join = Join(A, B, "inner", (col("a$k"),), (col("b$k"),), residual=expr("`a$v` > `b$w`"))
    assert tree(prune_columns(pick(join, "a$x")))[2:] == ["Scan a [a$k, a$v, a$x]", "Scan b [b$k, b$w]"]
    agg = Aggregate(
        A, (Named("a$k", col("a$k")),), (AggCall("n", "sum", (col("a$v"),)), AggCall("m", "sum", (col("a$x"),)))
    )
    assert tree(prune_columns(pick(agg, "n"))) == [
        "Project [n] ±",
        "Aggregate [sum(a$v) AS n] by [a$k] changes ±",
        "Scan a [a$k, a$v]",
    ]


def test_pruning_a_union_keeps_positions() -> None:
    plan = pick(Union((pick(A, "a$k", "a$v", "a$x"), pick(B, "b$k", "b$w", "b$y"))), "a$x")
    assert tree(prune_columns(plan)) == [
        "Project [a$x]",
        "Union all",
        "Project [a$x]",
        "Scan a [a$x]",
        "Project [b$y]",
        "Scan b [b$y]",
    ]


def test_projections_merge() -> None:
    plan = Project(Project(A, (Named("z", expr("`a$v` + 1")), Named("a$k", col("a$k")))), (Named("q", col("z")),))
    assert tree(merge_projects(plan)) == ["Project [a$v + 1 AS q]", "Scan a [a$k, a$v, a$x]"]


def test_passes_do_not_change_the_output_columns() -> None:
    join = Join(A, B, "left", (col("a$k"),), (col("b$k"),))
    plan = pick(Filter(join, expr("`a$v` > 1")), "b$y", "a$k")
    assert run_passes(plan).columns == plan.columns
    for one in PASSES:
        assert one(plan).columns == plan.columns


def test_explain_draws_a_tree_with_notes() -> None:
    join = Join(A, B, "inner", (col("a$k"),), (col("b$k"),))
    text = explain(Query(pick(join, "a$k"), ("k",)), note=lambda n: "[kernel]" if isinstance(n, Join) else "")
    assert text.splitlines() == [
        "Output [k] emit append",
        "└─ Project [a$k]",
        "   └─ Join inner on [a$k = b$k]  [kernel]",
        "      ├─ Scan a [a$k, a$v, a$x]",
        "      └─ Scan b [b$k, b$w, b$y]",
    ]
