"""A parsed query, before name resolution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from penstock.plan.nodes import Interval
from penstock.sql.tokens import Script

EmitKind = Literal["close", "final", "update", "changes", "every"]


@dataclass(frozen=True)
class EmitClause:
    kind: EmitKind
    every: Interval | None = None
    offset: int = 0


@dataclass(frozen=True)
class ProbeClause:
    """The extra syntax of a TEMPORAL PROBE JOIN: key names, the two time columns, the offsets, and the alias of its columns."""

    keys: tuple[exp.Identifier, ...]
    times: tuple[exp.Column, exp.Column] | None
    offsets_ms: tuple[int, ...]
    alias: str | None


@dataclass(frozen=True, eq=False)
class ParsedQuery:
    """`ast` is a sqlglot query; Penstock's own clauses are calls of reserved functions in it (`__asof`, `__probe` …)."""

    script: Script
    ast: exp.Expression
    text: str
    offset: int
    probes: tuple[ProbeClause, ...] = ()
    emit: EmitClause | None = None
    lateness: Interval | None = None
    late_to: str | None = None
    errors_to: str | None = None
    """The stream for rows that cannot be computed. Without one, such a row fails the query."""
    columns: tuple[exp.Identifier, ...] = ()
    """The names in CREATE … name (a, b) AS; none: those of the SELECT."""
    presented: bool = False
    """ORDER BY without LIMIT is the order in which the rows are presented (a view)."""
    once: bool = False
    """All rows are there: the query is a one-shot SELECT."""
    options: dict[str, str] = field(default_factory=dict)

    def presents(self, node: exp.Expr) -> bool:
        """Whether ORDER BY without LIMIT at this node is the order of presentation: it is the query, or the query without parentheses."""
        top: exp.Expr = self.ast
        while top is not node and isinstance(top, exp.Subquery):
            if any(top.args.get(k) for k in ("order", "limit", "offset")):
                return False
            top = top.this
        return self.presented and top is node
