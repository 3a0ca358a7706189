"""Small operations on sqlglot trees."""

from __future__ import annotations

from typing import cast

from sqlglot import exp


def bare(node: exp.Expr) -> exp.Expression:
    """The expression without its enclosing parentheses."""
    return cast(exp.Expression, node.unnest())
