"""Small operations on sqlglot trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from sqlglot import exp

E = TypeVar("E", bound=exp.Expression)


def bare(node: exp.Expr) -> exp.Expression:
    """The expression without its enclosing parentheses."""
    return cast(exp.Expression, node.unnest())


def with_parts(node: E, change: Callable[[exp.Expression], exp.Expression], source: exp.Expression | None = None) -> E:
    """Replaces each part of a node by what `change` makes of it or, if there is a `source`, of the same part of that. Changes the node, and returns it."""
    for key, value in list((source or node).args.items()):
        if isinstance(value, exp.Expression):
            node.set(key, change(value))
        elif isinstance(value, list):
            node.set(key, [change(v) if isinstance(v, exp.Expression) else v for v in value])
    return node
