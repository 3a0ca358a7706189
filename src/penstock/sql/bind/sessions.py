"""SESSION as a table function: each row with the bounds of its session."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.plan.nodes import AggCall, Aggregate, EmitMode, Expr, Generate, Named, Node, SessionWindow
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import column
from penstock.sql.bind.scope import Col


def sessions(
    ctx: Context,
    child: Node,
    cols: Sequence[Col],
    partition: Sequence[Expr],
    session: SessionWindow,
    origin: exp.Expression,
) -> tuple[Node, list[Col]]:
    """The rows of each session: a session aggregate collects them, and a generator expands them again.

    A row that extends or merges sessions changes the bounds of its neighbours, which retracts them. If windows are emitted when
    they close, the rows of a session are emitted together, once.
    """
    if session.time.column not in {t.column for t in child.times}:
        raise ctx.fail("PSK-2004", "SESSION needs an event-time column with a watermark", origin)
    gathered = ctx.fresh("session_rows")
    fields = [part for i, c in enumerate(cols) for part in (exp.Literal.string(f"f{i}"), column(c.internal))]
    row = exp.Anonymous(this="named_struct", expressions=fields)
    made = Aggregate(
        child,
        tuple(Named(ctx.fresh("session_key"), k) for k in partition),
        (AggCall(gathered, "array_agg", (Expr(row),)),),
        EmitMode.CLOSE if ctx.closing else EmitMode.CHANGES,
        session=session,
    )
    prefix = ctx.fresh("session")
    spread = [Col(c.name, f"{prefix}${c.name}") for c in cols]
    for old, new in zip(cols, spread, strict=True):
        if old.internal in ctx.types:
            ctx.types[new.internal] = ctx.types[old.internal]
    inline = exp.Anonymous(this="inline", expressions=[column(gathered)])
    return Generate(made, Expr(inline), tuple(c.internal for c in spread)), spread
