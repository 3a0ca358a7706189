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
    even where nothing matches. `domain`: the columns that say for which values of the query around it a row is.
    `late`: outputs that are not columns of `node` but expressions over them, to be evaluated above a left join with the block, where they are what the
    aggregate of nothing is if the row is missing.
    """

    node: Node
    cols: list[Col]
    correlated: list[exp.Expression] = field(default_factory=list)
    single: bool = False
    total: bool = False
    domain: tuple[str, ...] = ()
    late: dict[str, exp.Expression] = field(default_factory=dict)

    def exact(self) -> Node:
        """A node whose columns are the output columns, in order, and those of the domain."""
        wanted = (*(c.internal for c in self.cols), *self.domain)
        if self.node.columns == wanted:
            return self.node
        return Project(self.node, tuple(Named(n, col(n)) for n in wanted))
