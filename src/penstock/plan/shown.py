"""Shows columns and expressions of a plan under user-visible names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import AggCall, Aggregate, Analytic, Expr, Node, WindowCall
from penstock.plan.room import with_room

_BOUNDS = ("start", "end")


def shown(*nodes: Node) -> dict[str, str]:
    """User-visible names of the nodes' columns. Ambiguous names are qualified with their table."""
    calls = {name: text for n in nodes for name, text in _calls(n).items()}
    columns = [c for n in nodes for c in n.columns]
    names = {c: calls.get(c) or _plain(c) for c in columns}
    often = Counter(names.values())
    return {c: name if often[name] == 1 else c.replace("$", ".") for c, name in names.items()}


def text(expr: Expr, names: Mapping[str, str]) -> str:
    """The SQL of an expression, with columns renamed by `names`."""

    def known(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and node.name in names:
            return exp.Var(this=names[node.name])
        return node

    return with_room(lambda: str(expr.node.copy().transform(known).unnest().sql(dialect=DIALECT)))


def call_text(call: AggCall, names: Mapping[str, str]) -> str:
    """The call of an aggregate, as SQL."""
    args = ", ".join(text(a, names) for a in call.args) or "*"
    where = f" FILTER (WHERE {text(call.filter, names)})" if call.filter is not None else ""
    return f"{call.func}({'DISTINCT ' if call.distinct else ''}{args}){where}"


def window_text(call: WindowCall, names: Mapping[str, str]) -> str:
    """The call of an analytic function, as SQL without its OVER clause."""
    return f"{call.func}({', '.join(text(a, names) for a in call.args) or ('*' if call.func == 'count' else '')})"


def _plain(column: str) -> str:
    table, _, name = column.rpartition("$")
    return f"window_{name}" if table.startswith("window") and name in _BOUNDS else name


def _calls(node: Node) -> dict[str, str]:
    """The aggregate and analytic calls that produce columns of a node."""
    wanted = set(node.columns)
    found: dict[str, str] = {}
    for n in node.walk():
        if isinstance(n, Aggregate) and any(a.name in wanted for a in n.aggs):
            names = shown(n.child)
            found |= {a.name: call_text(a, names) for a in n.aggs if a.name in wanted}
        elif isinstance(n, Analytic) and any(w.name in wanted for w in n.calls):
            names = shown(n.child)
            found |= {w.name: window_text(w, names) for w in n.calls if w.name in wanted}
    return found
