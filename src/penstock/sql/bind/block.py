"""What binding a query gives to the query around it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.plan.nodes import Named, Node, Project, col
from penstock.sql.bind.scope import Col


@dataclass
class Block:
    """`cols` are the output columns; `node` may have more. `correlated` are conditions over columns of `node` and of the query around it.

    `single`: at most one row (per value of the correlated columns). `total`: an aggregate without GROUP BY and HAVING, which has a row
    even where nothing matches. `domain`: the columns that say for which values of the query around it a row is. `counts`: the only output is a count, 0 where nothing matches; `mixed_count`: some output has a count in it.
    """

    node: Node
    cols: list[Col]
    correlated: list[exp.Expression] = field(default_factory=list)
    single: bool = False
    total: bool = False
    counts: bool = False
    mixed_count: bool = False
    domain: tuple[str, ...] = ()

    def exact(self) -> Node:
        """A node whose columns are the output columns, in order, and those of the domain."""
        wanted = (*(c.internal for c in self.cols), *self.domain)
        if self.node.columns == wanted:
            return self.node
        return Project(self.node, tuple(Named(n, col(n)) for n in wanted))
