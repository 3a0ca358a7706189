"""Small steps on sqlglot trees."""

from __future__ import annotations

from typing import cast

from sqlglot import exp


def bare(node: exp.Expr) -> exp.Expression:
    """The expression without the parentheses around it."""
    return cast(exp.Expression, node.unnest())
