"""The planner: a tuple of pure functions over frozen nodes, run in order."""

from __future__ import annotations

from collections.abc import Callable

from penstock.plan.nodes import Node
from penstock.plan.passes.extremes import window_extremes
from penstock.plan.passes.projects import merge_projects
from penstock.plan.passes.prune import prune_columns
from penstock.plan.passes.pushdown import push_filters
from penstock.plan.passes.ranks import rank_filters

Pass = Callable[[Node], Node]

PASSES: tuple[Pass, ...] = (rank_filters, push_filters, window_extremes, merge_projects, prune_columns)


def run_passes(root: Node) -> Node:
    for one in PASSES:
        root = one(root)
    return root


__all__ = ["PASSES", "Pass", "run_passes"]
