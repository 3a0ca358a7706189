"""explode, unnest and other table-generating functions."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, Generate, Node
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.exprs import ExprBinder, to_expr
from penstock.sql.bind.scope import Col
from penstock.sql.functions import generator_name


def generate(
    ctx: Context,
    child: Node,
    call: exp.Expression,
    binder: ExprBinder,
    names: list[str] | None,
    outer: bool,
    table: str = "",
) -> tuple[Node, list[Col]]:
    """Returns a Generate node over `child` for a call of explode, unnest …, and its columns."""
    name = generator_name(call)
    if name is None:
        raise ctx.fail("PSK-1006", "expected a generator: explode, posexplode, unnest, inline", call)
    node = binder.bind(call)
    if name == "unnest":
        node = exp.Explode(this=node.expressions[0])
    if name.endswith("_outer"):
        outer = True
        base = exp.Explode if name == "explode_outer" else exp.Posexplode
        node = base(this=node.this if not isinstance(node, exp.Anonymous) else node.expressions[0])
    if names is None:
        if name.startswith("posexplode"):
            names = ["pos", "col"]
        elif name in ("inline", "stack"):
            raise ctx.fail(
                "PSK-1012",
                f"{name}() needs column aliases",
                call,
                hint="Write LATERAL VIEW inline(…) t AS a, b.",
            )
        else:
            names = ["col"]
    if (name in ("explode", "explode_outer", "unnest") and len(names) > 2) or (
        name.startswith("posexplode") and not 2 <= len(names) <= 3
    ):
        raise ctx.fail("PSK-1016", f"{name}() does not return {len(names)} columns", call)
    prefix = ctx.fresh(table or "gen")
    internals = tuple(f"{prefix}${n}" for n in names)
    if Expr(node).refs - frozenset(child.columns):
        raise CannotDecorrelate
    made = Generate(child, to_expr(ctx, node, call), internals, outer)
    return made, [Col(n, i) for n, i in zip(names, internals, strict=True)]
