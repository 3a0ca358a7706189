"""Random rows, of which some fail, in random commits: after each the result is that of the rows that do not fail, and the errors are those of the others."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from pyspark.sql import SparkSession
from tests.spark.job_trace import Bag, JobTrace

DDL = "CREATE TABLE t (id BIGINT, a BIGINT, b BIGINT, s STRING);"
LARGEST = (1 << 63) - 1
ZERO = "Division by zero"
SUM = "the sum does not fit into BIGINT"

Given = tuple[int, int, int | None, str | None]
Commit = list[tuple[Given, int]]


class Failure(Exception):
    """What the reference says of a row that fails: the first words of the error."""


class Expression(NamedTuple):
    sql: str
    of: Callable[[Given], Any]


def _over(a: int | None, b: int | None, make: Callable[[int, int], Any], words: str) -> Any:
    if b == 0:
        raise Failure(words)
    return None if a is None or b is None else make(a, b)


def _remainder(a: int, b: int) -> int:
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _cast(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise Failure(f"The value '{text}'") from None


def _plus(value: int) -> int:
    if value > 5:
        raise Failure("overflow")
    return value + LARGEST - 5


EXPRESSIONS = (
    Expression("a", lambda r: r[1]),
    Expression("a / b", lambda r: _over(r[1], r[2], lambda a, b: a / b, ZERO)),
    Expression("a % b", lambda r: _over(r[1], r[2], _remainder, "Remainder by zero")),
    Expression("CAST(s AS INT)", lambda r: _cast(r[3])),
    Expression(f"a + {LARGEST - 5}", lambda r: _plus(r[1])),
    Expression("CASE WHEN b > 0 THEN b ELSE a % b END", lambda r: r[2] if (r[2] or 0) > 0 else _over(r[1], r[2], _remainder, "Remainder by zero")),
    Expression("COALESCE(b, a % 0)", lambda r: r[2] if r[2] is not None else _over(r[1], 0, _remainder, "Remainder by zero")),
)  # fmt: skip
CONDITIONS = (
    Expression("id > 2", lambda r: r[0] > 2),
    Expression("a % b < 3", lambda r: (x := EXPRESSIONS[2].of(r)) is not None and x < 3),
    Expression("CAST(s AS INT) > 1", lambda r: (x := _cast(r[3])) is not None and x > 1),
    Expression("b IS NULL OR a / b > 0.5", lambda r: r[2] is None or EXPRESSIONS[1].of(r) > 0.5),
)
ROWS = some.tuples(
    some.integers(1, 6),
    some.sampled_from([-3, 0, 1, 2, 7]),
    some.sampled_from([0, 1, 2, 3, None]),
    some.sampled_from(["1", "2", "x", None]),
)


class Projection(NamedTuple):
    condition: Expression
    items: tuple[Expression, ...]

    @property
    def sql(self) -> str:
        items = ", ".join(f"{e.sql} AS c{i}" for i, e in enumerate(self.items))
        return f"SELECT id, {items} FROM t WHERE {self.condition.sql}"

    def expected(self, rows: Bag) -> tuple[Bag, Bag]:
        result, errors = Counter[Any](), Counter[Any]()
        for row, copies in rows.items():
            at = self.condition
            try:
                if not at.of(row):
                    continue
                values = []
                for at in self.items:
                    values.append(at.of(row))
                result[(row[0], *values)] += copies
            except Failure as failure:
                errors[(at.sql, str(failure), row[0])] += copies
        return result, errors


class Grouping(NamedTuple):
    key: Expression
    argument: Expression

    @property
    def sql(self) -> str:
        return f"SELECT {self.key.sql} AS k, sum({self.argument.sql}) AS n, max(id) AS m FROM t GROUP BY {self.key.sql}"

    def expected(self, rows: Bag) -> tuple[Bag, Bag]:
        errors, groups = Counter[Any](), dict[Any, list[Any]]()
        for row, copies in rows.items():
            at = self.key.sql
            try:
                key = self.key.of(row)
                at = f"sum({self.argument.sql})"
                value = self.argument.of(row)
                groups.setdefault(key, []).extend([(value, row[0])] * copies)
            except Failure as failure:
                errors[(at, str(failure), row[0])] += copies
        result = Counter[Any]()
        for key, values in groups.items():
            known = [v for v, _ in values if v is not None]
            total = sum(known) if known else None
            if isinstance(total, int) and abs(total) > LARGEST:
                errors[(f"sum({self.argument.sql})", SUM, None)] += 1
            else:
                result[(key, total, max(i for _, i in values))] += 1
        return result, errors


@some.composite
def commits(draw: some.DrawFn) -> list[Commit]:
    """Inserts, and deletions and updates of rows that are there; at the end everything is taken back."""
    there: list[Given] = []
    out: list[Commit] = []
    chance = random.Random(draw(some.integers(0, 1 << 30)))
    for _ in range(draw(some.integers(2, 5))):
        commit: Commit = []
        for row in draw(some.lists(ROWS, min_size=1, max_size=6)):
            kind = chance.choice(["insert", "insert", "delete", "update"]) if there else "insert"
            if kind != "insert":
                commit.append((there.pop(chance.randrange(len(there))), -1))
            if kind != "delete":
                commit.append((row, 1))
                there.append(row)
        out.append(commit)
    return [*out, [(row, -1) for row in there]]


def _same(found: Bag, expected: Bag) -> bool:
    def near(rows: Bag) -> Bag:
        return Counter(
            {tuple(round(v, 9) if isinstance(v, float) else v for v in row): n for row, n in rows.items() if n}
        )

    return near(found) == near(expected)


def _check(trace: JobTrace, queries: tuple[Projection | Grouping, ...], trail: list[Commit], restart: int) -> None:
    rows = Counter[Any]()
    for number, commit in enumerate(trail):
        for row, weight in commit:
            rows[row] += weight
        rows = +rows
        trace.commit({"t": [(*row, weight) for row, weight in commit]})
        for i, query in enumerate(queries):
            result, errors = query.expected(rows)
            assert _same(trace.results[i], result), (query.sql, number)
            told = Counter[Any]()
            for (expression, error, at), copies in trace.errors[i].items():
                words = next(e for _, e, _ in [*errors, ("", error, None)] if error.startswith(e))
                told[(expression, words, json.loads(at).get("id"))] += copies
            assert told == errors, (query.sql, number)
        if number == restart:
            trace.restart()
    assert trace.errors == [Counter()] * len(queries)


SETTINGS = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
PROJECTIONS = some.builds(
    Projection,
    some.sampled_from(CONDITIONS),
    some.tuples(some.sampled_from(EXPRESSIONS), some.sampled_from(EXPRESSIONS)),
)
GROUPINGS = some.builds(
    Grouping, some.sampled_from(EXPRESSIONS[1:4]), some.sampled_from([e for e in EXPRESSIONS if "/" not in e.sql])
)


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    made = iter(range(1000))
    return lambda: tmp_path / str(next(made))


@SETTINGS
@given(queries=some.tuples(PROJECTIONS, PROJECTIONS), trail=commits(), restart=some.integers(0, 3))
def test_projections_that_share_a_job(
    spark: SparkSession, folders: Callable[[], Path], queries: tuple[Projection, ...], trail: list[Commit], restart: int
) -> None:
    with JobTrace(spark, folders(), DDL, *(q.sql for q in queries)) as trace:
        _check(trace, queries, trail, restart)


@SETTINGS
@given(query=GROUPINGS, trail=commits(), restart=some.integers(0, 3))
def test_groups(
    spark: SparkSession, folders: Callable[[], Path], query: Grouping, trail: list[Commit], restart: int
) -> None:
    with JobTrace(spark, folders(), DDL, query.sql) as trace:
        _check(trace, (query,), trail, restart)
