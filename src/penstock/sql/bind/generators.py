"""explode, unnest and other table-generating functions."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, Generate, Node
from penstock.sql import intervals
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.exprs import ExprBinder, to_expr
from penstock.sql.bind.scope import Col
from penstock.sql.files import READ_FILES
from penstock.sql.functions import generator_name, name_of

SERIES = frozenset({"range", "generate_series"})
VARIANTS = frozenset({"variant_explode", "variant_explode_outer"})
_TABLES = SERIES | VARIANTS
"""Table functions: unlike generators, they are only for FROM."""


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
    if name in SERIES:
        node = exp.Explode(this=series(ctx, name, node, call))
        names = names or ["id" if name == "range" else table or "generate_series"]
    if name == "unnest":
        node = exp.Explode(this=node.expressions[0])
    if name == "inline_outer":
        outer = True
        node = exp.Anonymous(this="inline", expressions=node.expressions)
    elif name == "variant_explode_outer":
        outer = True
        node = exp.Anonymous(this="variant_explode", expressions=node.expressions)
    elif name.endswith("_outer"):
        outer = True
        base = exp.Explode if name == "explode_outer" else exp.Posexplode
        node = base(this=node.this if not isinstance(node, exp.Anonymous) else node.expressions[0])
    if names is None:
        if name.startswith(("explode", "posexplode")):
            names = ["pos"] if name.startswith("pos") else []
            names += (
                ["key", "value"]
                if _is_map(ctx, node.expressions[0] if isinstance(node, exp.Anonymous) else node.this)
                else ["col"]
            )
        elif name.startswith("variant_explode"):
            names = ["pos", "key", "value"]
        elif name == "json_tuple":
            names = [f"c{i}" for i in range(len(node.expressions) - 1)]
        elif name in ("inline", "inline_outer", "stack"):
            raise ctx.fail(
                "PSK-1012",
                f"{name}() needs column aliases",
                call,
                hint="Write LATERAL VIEW inline(…) t AS a, b.",
            )
        else:
            names = ["col"]
    if name in SERIES and len(names) != 1:
        raise ctx.fail("PSK-1016", f"{name}() returns one column", call)
    if name in VARIANTS and len(names) != 3:
        raise ctx.fail("PSK-1016", f"{name}() returns three columns: pos, key and value", call)
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


def _is_map(ctx: Context, argument: object) -> bool:
    """Whether an argument is known to be a MAP: of one, both keys and values are columns."""
    return isinstance(argument, exp.Column) and ctx.types.get(argument.name, "").startswith("map<")


def refuse_view(ctx: Context, lateral: exp.Lateral) -> None:
    """Raises PSK-1012 for LATERAL VIEW with a function that Spark has only for LATERAL."""
    name = name_of(lateral.this)
    if lateral.args.get("view") and name in VARIANTS:
        raise ctx.fail(
            "PSK-1012",
            f"{name}() cannot have LATERAL VIEW",
            lateral.this,
            hint=f"Write FROM …, LATERAL {name}(…) AS e.",
        )


def refuse_series(ctx: Context, call: exp.Expression) -> None:
    """Raises PSK-1006 for a table function where a value is expected."""
    name = name_of(call)
    if name in _TABLES:
        raise ctx.fail(
            "PSK-1006",
            f"{name} returns rows, not a value",
            call,
            hint=f"Call it in FROM: FROM …, LATERAL {name}(…) AS s(x).",
        )


def refuse_files(ctx: Context, call: exp.Anonymous) -> None:
    """Raises PSK-1012 for read_files: files have no changes to follow."""
    if call.name.lower() == READ_FILES:
        raise ctx.fail(
            "PSK-1012",
            "a continuous query cannot read files",
            call,
            hint="COPY t FROM '…' puts them into a table or source, which it can read.",
        )


def series(ctx: Context, name: str, node: exp.Expr, call: exp.Expr) -> exp.Expression:
    """range([start,] end [, step]) without `end`, generate_series(start, end [, step]) with it, as an array that may be empty."""
    args = list(node.expressions)
    least = 1 if name == "range" else 2
    if not least <= len(args) <= 3:
        raise ctx.fail("PSK-1007", f"{name}() takes {least} to 3 arguments", call)
    if len(args) == 1:
        args = [exp.Literal.number(0), args[0]]
    step = args[2] if len(args) == 3 else exp.Literal.number(1)
    sign = _sign(step)
    if sign is None:
        raise ctx.fail("PSK-1012", f"the step of {name}() must be a constant other than zero", call)
    if name == "range":
        args = [exp.cast(a, exp.DataType.build("BIGINT")) for a in args]
    start, end = args[0], args[1]
    if name == "range":
        back = exp.Literal.number(1)
        last = exp.Sub(this=end.copy(), expression=back) if sign > 0 else exp.Add(this=end.copy(), expression=back)
    else:
        last = end.copy()
    compare = exp.LTE if sign > 0 else exp.GTE
    listed = exp.Anonymous(this="sequence", expressions=[start.copy(), exp.Paren(this=last.copy()), step.copy()])
    none = exp.Null()
    return exp.If(this=compare(this=start.copy(), expression=exp.Paren(this=last)), true=listed, false=none)


def _sign(step: exp.Expression) -> int | None:
    inner = step.this if isinstance(step, exp.Neg) else step
    if isinstance(inner, exp.Literal) and inner.is_int and int(inner.name):
        return -1 if isinstance(step, exp.Neg) else 1
    value = intervals.from_node(step)
    size = (value.months or value.micros) if value is not None else 0
    return (1 if size > 0 else -1) if size else None
