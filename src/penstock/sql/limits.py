"""Size limits of statements. Spark would need minutes to plan a larger one, or overflow its stack; PSK-1020 instead."""

from __future__ import annotations

from sqlglot import exp

from penstock.errors import PenstockError, Position, fail
from penstock.sql.tokens import Script

MAX_NESTING = 200
"""Nesting depth of parentheses, calls, CASE and subqueries."""
MAX_CONDITIONS = 3_000
"""Conditions in one chain of AND and OR."""
MAX_TERMS = 1_000
"""Terms in one chain of another operator: `a + b + …`, `a || b || …`, or branches of one chain of UNION."""
MAX_BLOCKS = 500
"""SELECT blocks of a continuous query. A CTE counts once for each reference."""
MAX_JOINS = 100
"""Joins of one FROM clause of a continuous query."""
MAX_NODES = 100_000
"""Names, values and operators in all expressions of a continuous query, after aliases are expanded."""


MAX_TYPE = 50
"""Nesting depth of types: ARRAY<ARRAY<…>>."""
MAX_WRITTEN = 100
"""Tree depth of a value or condition in INSERT, UPDATE, DELETE and SUBSCRIBE."""

_NESTING = (exp.Func, exp.Unary, exp.Select, exp.Bracket, exp.Lambda, exp.Tuple)


def check_tree(script: Script, tree: exp.Expression, start: Position) -> None:
    """Raises PSK-1020 if a parsed statement is nested too deeply or has too long a chain of operators. `start` is its position."""
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, level = stack.pop()
        # For the SQL library, AND and OR are calls too, and an If is part of its CASE.
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
    """The number of operators chained at a node, and their operands. For any other node: 0 and its children."""
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
    """Raises PSK-1020 if an expression that is passed to Spark SQL unchanged is too deep."""
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, level = stack.pop()
        if level > MAX_WRITTEN:
            raise fail(
                "PSK-1020",
                f"a value or condition is nested more than {MAX_WRITTEN} levels deep",
                position=script.place(node) or start,
                sql=script.shown,
            )
        # The SQL library writes a chain of one operator in a loop, not recursively.
        stack += [
            (c, level if _continues(node, c) and type(c) is type(node) else level + 1) for c in node.iter_expressions()
        ]


def _continues(node: exp.Expr, child: exp.Expr) -> bool:
    """Whether both belong to the same chain of operators."""
    if isinstance(node, exp.Connector):
        return isinstance(child, exp.Connector)
    if isinstance(node, exp.SetOperation):
        return isinstance(child, exp.SetOperation)
    return isinstance(node, exp.Binary) and isinstance(child, exp.Binary) and not isinstance(child, exp.Connector)


def too_deep(script: Script, where: Position | None) -> PenstockError:
    return fail(
        "PSK-1020", f"the statement is nested more than {MAX_NESTING} levels deep", position=where, sql=script.shown
    )
