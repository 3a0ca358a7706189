"""One-row pushes at random moments: from the call of insert to the subscriber."""

from __future__ import annotations

import random
import time
from contextlib import closing

import numpy as np
import pyarrow as pa

from benchmarks.data import START_MS, record_batch
from benchmarks.engines import laminar, penstock
from benchmarks.engines.query import SILENCE_S, Query
from benchmarks.work import LAMINAR, PENSTOCK, Against, AtMost, Figures, Row, Work

STATELESS = "SELECT k, v * 2 AS doubled FROM {source} WHERE v < 500"
KEYED = "SELECT k, sum(v) AS total, count(*) AS n FROM {source} GROUP BY k EMIT CHANGES"
KEYS = 10
WARM_UP = 800
LONGEST_PAUSE_S = 0.1
SETTLING = 50
"""So many of the pushes of the warm-up have pauses like those that are measured; the others come one after the other."""


def latencies(query: Query, pushes: int) -> list[float]:
    """Milliseconds of each push after the warm-up."""
    dice = random.Random(1)
    taken = []
    for number in range(WARM_UP + pushes):
        batch = query.prepare(row(number))
        if number >= WARM_UP - SETTLING:
            time.sleep(dice.uniform(0.0, LONGEST_PAUSE_S))
        began = time.perf_counter()
        query.push(batch)
        table = query.poll(SILENCE_S)
        seconds = time.perf_counter() - began
        if table is None:
            raise TimeoutError(f"push {number} did not arrive")
        if number >= WARM_UP:
            taken.append(seconds * 1_000)
    return taken


def row(number: int) -> pa.RecordBatch:
    return record_batch(np.array([number % KEYS]), np.array([number % 500]), np.array([START_MS + number]))


def figures(stateless: list[float], keyed: list[float]) -> Figures:
    return {
        "stateless_p50": [float(np.percentile(stateless, 50))],
        "stateless_p99": [float(np.percentile(stateless, 99))],
        "keyed_p50": [float(np.percentile(keyed, 50))],
        "keyed_p99": [float(np.percentile(keyed, 99))],
    }


def with_penstock(quick: bool) -> Figures:
    pushes = 50 if quick else 200
    with penstock.opened() as db:
        # One at a time: a query that nobody measures would take its share of each push.
        taken = []
        for name, sql in (("stateless", STATELESS), ("keyed", KEYED)):
            with closing(penstock.PenstockQuery(db, name, sql)) as query:
                taken.append(latencies(query, pushes))
    return figures(*taken)


def with_laminar(quick: bool) -> Figures:
    pushes = 50 if quick else 200
    taken = []
    for sql in (STATELESS, KEYED):
        with closing(laminar.LaminarQuery(sql)) as query:
            taken.append(latencies(query, pushes))
    return figures(*taken)


WORK = Work(
    name="latency",
    programs={PENSTOCK: with_penstock, LAMINAR: with_laminar},
    rows=(
        Row(
            "one row to a subscriber, stateless, p50",
            "stateless_p50",
            "ms",
            (AtMost(50), Against(LAMINAR, 1.0)),
            better="less",
            digits=0,
        ),
        Row("one row to a subscriber, stateless, p99", "stateless_p99", "ms", (AtMost(200),), better="less", digits=0),
        Row(
            "one row to a subscriber, keyed, p50",
            "keyed_p50",
            "ms",
            (AtMost(30), Against(LAMINAR, 1.0)),
            better="less",
            digits=0,
        ),
        Row("one row to a subscriber, keyed, p99", "keyed_p99", "ms", (AtMost(60),), better="less", digits=0),
    ),
)
