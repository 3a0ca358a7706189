"""The result of binding a query, for its outer query."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.plan.nodes import Named, Node, Project, SortKey, col
from penstock.sql.bind.scope import Col


@dataclass
class Block:
    """`cols` are the output columns; `node` may have more. `correlated` are conditions over columns of `node` and of the outer query.

    `single`: at most one row (per value of the correlated columns). `total`: an aggregate without GROUP BY and HAVING, which has a row
    even if nothing matches. `domain`: the columns with the outer query's values that a row belongs to.
    `deferred`: outputs that are expressions over columns of `node`, to be evaluated above a left join with the block. If the row is missing,
    they give the value of the aggregate over no rows. `order`: the order in which a view presents its rows, over `cols`.
    """

    node: Node
    cols: list[Col]
    correlated: list[exp.Expression] = field(default_factory=list)
    single: bool = False
    total: bool = False
    domain: tuple[str, ...] = ()
    deferred: dict[str, exp.Expression] = field(default_factory=dict)
    order: list[SortKey] = field(default_factory=list)

    def exact(self) -> Node:
        """A node whose columns are exactly the output columns, in order, and those of the domain."""
        wanted = (*(c.internal for c in self.cols), *self.domain)
        if self.node.columns == wanted:
            return self.node
        return Project(self.node, tuple(Named(n, col(n)) for n in wanted))
