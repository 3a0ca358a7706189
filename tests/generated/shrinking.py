"""Makes a failing case smaller: fewer commits and rows, then a simpler SELECT, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from tests.generated.traces import Commit

Fails = Callable[[str, Sequence[Commit]], bool]


def shrink(sql: str, trace: Sequence[Commit], fails: Fails, patience: int = 150) -> tuple[str, list[Commit]]:
    """The smallest (SELECT, trace) found within `patience` runs that `fails` still says of that it fails."""
    left = patience
    commits = list(trace)
    while True:
        for smaller_sql, smaller in _smaller(sql, commits):
            left -= 1
            if left < 0:
                return sql, commits
            if fails(smaller_sql, smaller):
                sql, commits = smaller_sql, smaller
                break
        else:
            return sql, commits


def _smaller(sql: str, trace: list[Commit]) -> Iterator[tuple[str, list[Commit]]]:
    for shorter in _traces(trace):
        yield sql, shorter
    for simpler in simpler_queries(sql):
        yield simpler, trace


def _traces(trace: list[Commit]) -> Iterator[list[Commit]]:
    for i in range(len(trace)):
        if len(trace) > 1:
            yield trace[:i] + trace[i + 1 :]
    for i, commit in enumerate(trace):
        for j, change in enumerate(commit):
            if len(commit) > 1:
                yield [*trace[:i], commit[:j] + commit[j + 1 :], *trace[i + 1 :]]
            half = len(change.rows) // 2
            for rows in (change.rows[:half], change.rows[half:]) if half else ():
                yield [*trace[:i], (*commit[:j], replace(change, rows=rows), *commit[j + 1 :]), *trace[i + 1 :]]


def simpler_queries(sql: str) -> Iterator[str]:
    """The query with one part taken out, in all ways; not all of them are valid."""
    root = sqlglot.parse_one(sql, read="spark")
    count = sum(1 for _ in root.walk())
    for index in range(count):
        for change in range(4):
            copy = root.copy()
            node = next(n for i, n in enumerate(copy.walk()) if i == index)
            made = _change(copy, node, change)
            if made is not None:
                text = made.sql(dialect="spark")
                if len(text) < len(sql):
                    yield text


def _change(root: exp.Expr, node: exp.Expr, change: int) -> exp.Expr | None:
    """One of up to four simpler forms of a node, in place."""
    match node:
        case exp.SetOperation() if change < 2:
            return _put(root, node, node.this if change == 0 else node.expression)
        case exp.Select():
            keys = ("where", "having", "distinct", "qualify")
            if node.args.get(keys[change]) is None:
                return None
            node.set(keys[change], None)
            return root
        case exp.Join() | exp.CTE() if change == 0:
            node.pop()
            return root
        case exp.Alias() if change == 0 and isinstance(node.parent, exp.Select) and len(node.parent.expressions) > 1:
            node.pop()
            return root
        case exp.Connector() if change < 2:
            return _put(root, node, node.this if change == 0 else node.expression)
        case exp.Subquery() if change == 0 and isinstance(node.parent, (exp.From, exp.Join)):
            inner = node.this.args.get("from_") if isinstance(node.this, exp.Select) else None
            if inner is None or not isinstance(inner.this, exp.Table):
                return None
            return _put(root, node, exp.alias_(inner.this.this.copy(), node.alias, table=True))
        case exp.Func() | exp.Binary() | exp.Case() | exp.Paren() if not isinstance(node, exp.AggFunc):
            parts = [n for n in node.iter_expressions() if not isinstance(n, (exp.DataType, exp.Interval, exp.If))]
            return _put(root, node, parts[change]) if change < len(parts) else None
    return None


def _put(root: exp.Expr, node: exp.Expr, other: exp.Expr) -> exp.Expr:
    if node is root:
        return other.copy()
    node.replace(other.copy())
    return root
