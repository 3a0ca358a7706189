"""All works, in the order of the table."""

from __future__ import annotations

from benchmarks.work import Work
from benchmarks.works import (
    asof,
    cold,
    commits,
    contents,
    demo,
    diff,
    fanout,
    groups,
    insert,
    latency,
    memory,
    nexmark,
    points,
    project,
    ratios,
    select,
    sinks,
    steady,
    subscribers,
    views,
    window,
)

WORKS: tuple[Work, ...] = (
    window.WORK,
    groups.WORK,
    project.WORK,
    asof.WORK,
    nexmark.WORK,
    steady.WORK,
    insert.WORK,
    sinks.WORK,
    latency.WORK,
    commits.WORK,
    diff.WORK,
    ratios.WORK,
    fanout.WORK,
    views.WORK,
    subscribers.WORK,
    select.WORK,
    points.WORK,
    cold.WORK,
    demo.WORK,
    memory.WORK,
    contents.WORK,
)
