"""How large a statement may be. What is larger would take Spark minutes to plan, or its stack; it is refused with PSK-1020."""

from __future__ import annotations

from sqlglot import exp

from penstock.errors import PenstockError, Position, fail
from penstock.sql.tokens import Script

MAX_NESTING = 200
"""Levels of parentheses, calls, CASE and subqueries inside each other."""
MAX_CONDITIONS = 3_000
"""Conditions in one chain of AND and OR."""
MAX_TERMS = 1_000
"""Terms in one chain of another operator: `a + b + …`, `a || b || …`, or branches of one chain of UNION."""
MAX_BLOCKS = 500
"""SELECT blocks of a continuous query, each counted as often as it is read: a CTE once for every place that names it."""
MAX_JOINS = 100
"""Joins of one FROM clause of a continuous query."""
MAX_NODES = 100_000
"""Names, values and operators of all expressions of a continuous query, after aliases are replaced by what they stand for."""


MAX_TYPE = 50
"""Types inside each other: ARRAY<ARRAY<…>>."""
MAX_WRITTEN = 100
"""Levels, of any kind, in a value or condition of INSERT, UPDATE, DELETE and SUBSCRIBE."""

_NESTING = (exp.Func, exp.Unary, exp.Select, exp.Bracket, exp.Lambda, exp.Tuple)


def check_tree(script: Script, tree: exp.Expression, start: Position) -> None:
    """PSK-1020 if a parsed statement is nested too deeply or has too long a chain of operators. `start` is its place."""
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, level = stack.pop()
        # AND and OR are calls to the SQL library, too; and an If is a part of its CASE.
        if isinstance(node, _NESTING) and not isinstance(node, (exp.Binary, exp.If)):
            level += 1
            if level > MAX_NESTING:
                raise too_deep(script, script.place(node) or start)
        operators, inside = _chain(node)
        connector = isinstance(node, exp.Connector)
        if operators >= (MAX_CONDITIONS if connector else MAX_TERMS):
            what = f"{MAX_CONDITIONS:,} conditions" if connector else f"{MAX_TERMS:,} terms"
            where = script.place(node) or start
            raise fail("PSK-1020", f"more than {what} in one chain", position=where, sql=script.shown)
        stack += [(child, level) for child in inside]


def _chain(node: exp.Expr) -> tuple[int, list[exp.Expr]]:
    """How many operators are chained at a node, and what they chain; for another node 0, and its children."""
    if not isinstance(node, (exp.Binary, exp.SetOperation)):
        return 0, list(node.iter_expressions())
    operators = 0
    inside: list[exp.Expr] = []
    stack: list[exp.Expr] = [node]
    while stack:
        operator = stack.pop()
        operators += 1
        for child in operator.iter_expressions():
            if _continues(operator, child):
                stack.append(child)
            else:
                inside.append(child)
    return operators, inside


def check_written(script: Script, tree: exp.Expression, start: Position) -> None:
    """PSK-1020 if an expression that is written as Spark SQL just as it stands has too many levels."""
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, level = stack.pop()
        if level > MAX_WRITTEN:
            raise fail(
                "PSK-1020",
                f"more than {MAX_WRITTEN} levels inside each other in a value or condition",
                position=script.place(node) or start,
                sql=script.shown,
            )
        # A chain of one operator is written in a loop.
        stack += [
            (c, level if _continues(node, c) and type(c) is type(node) else level + 1) for c in node.iter_expressions()
        ]


def _continues(node: exp.Expr, child: exp.Expr) -> bool:
    """Whether both belong to one chain of operators."""
    if isinstance(node, exp.Connector):
        return isinstance(child, exp.Connector)
    if isinstance(node, exp.SetOperation):
        return isinstance(child, exp.SetOperation)
    return isinstance(node, exp.Binary) and isinstance(child, exp.Binary) and not isinstance(child, exp.Connector)


def too_deep(script: Script, where: Position | None) -> PenstockError:
    return fail("PSK-1020", f"more than {MAX_NESTING} levels inside each other", position=where, sql=script.shown)
