"""How the operators of a query relate to those of the query that is to replace it."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan import nodes as p
from penstock.plan.linear import LINEAR
from penstock.plan.passes.prune import prune_columns
from penstock.plan.repeats import expressions, shape


def operators(query: p.Query) -> list[p.Node]:
    """The nodes that keep state."""
    return [n for n in query.root.walk() if not isinstance(n, LINEAR)]


def same_state(old: p.Query, new: p.Query) -> bool:
    """True if both keep the same state: the same operators over the same inputs, in the same order."""
    return [shape(n) for n in operators(old)] == [shape(n) for n in operators(new)]


def obstacle(old: p.Query, new: p.Query) -> str | None:
    """Why a query does not continue another one: which of its operators has no counterpart there, and what is different. An aggregate has one with the same
    keys and inputs, whatever it computes. None if all have one."""
    left = operators(old)
    for node in operators(new):
        found = next((n for n in left if _alike(n, node)), None)
        if found is None:
            same = [n for n in left if type(n) is type(node)]
            why = _difference(same[0], node) if same else "the old query has no such operator"
            return f"{_described(node)}: {why}"
        left.remove(found)
    return None


def scanned(query: p.Query) -> list[int]:
    """The objects that a query reads, once for each place where it does."""
    return [n.object_id for n in query.root.walk() if isinstance(n, p.Scan)]


def _described(node: p.Node) -> str:
    if isinstance(node, p.Aggregate):
        keys = [k.expr.sql().replace("`", "").rpartition("$")[2] for k in node.keys]
        return f"the aggregate by {', '.join(keys) or 'nothing'}"
    return f"the operator {type(node).__name__}"


def _alike(one: p.Node, other: p.Node) -> bool:
    if isinstance(one, p.Aggregate) and isinstance(other, p.Aggregate):
        return _bare(one) == _bare(other)
    return shape(one) == shape(other)


def _bare(node: p.Aggregate) -> str:
    """An aggregate without what it computes, over an input without the columns that only that needs."""
    return shape(prune_columns(replace(node, aggs=())))


def _difference(one: p.Node, other: p.Node) -> str:
    if isinstance(one, p.Aggregate) and isinstance(other, p.Aggregate):
        if len(one.keys) != len(other.keys):
            return f"the old one has {len(one.keys)} key{'s' if len(one.keys) != 1 else ''}"
        if (one.mode, one.window_end, one.session, one.lateness_ms) != (
            other.mode,
            other.window_end,
            other.session,
            other.lateness_ms,
        ):
            return "its windows, or when it emits, are different"
    if [shape(c) for c in one.children] == [shape(c) for c in other.children]:
        own = [[e.sql() for e in expressions(n, deep=False)] for n in (one, other)]
        return f"the old one has {', '.join(own[0]) or 'nothing'} in place of {', '.join(own[1]) or 'nothing'}"
    return "its input or its keys are different"
