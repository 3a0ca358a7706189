"""Compares the operators of a query with those of the query that replaces it."""

from __future__ import annotations

from penstock.plan import nodes as p
from penstock.plan.passes.prune import prune_columns
from penstock.plan.repeats import shape


def operators(query: p.Query) -> list[p.Node]:
    """The nodes that keep state."""
    return [n for n in query.root.walk() if not isinstance(n, p.Linear)]


def same_state(old: p.Query, new: p.Query) -> bool:
    """True if both keep the same state: the same operators over the same inputs, in the same order."""
    return [shape(n) for n in operators(old)] == [shape(n) for n in operators(new)]


def obstacle(old: p.Query, new: p.Query) -> str | None:
    """Why a query cannot continue another one: which of its operators has no counterpart there, and what is different. The counterpart of an aggregate has the same
    keys and inputs; its functions may differ. None if all operators have one."""
    left = operators(old)
    for node in operators(new):
        found = next((n for n in left if _alike(n, node)), None)
        if found is None:
            same = [n for n in left if type(n) is type(node)]
            why = _difference(same[0], node) if same else "the old query has no such operator"
            return f"{node.title}: {why}"
        left.remove(found)
    return None


def scanned(query: p.Query) -> list[int]:
    """The objects that a query reads, once per scan."""
    return [n.object_id for n in query.root.walk() if isinstance(n, p.Scan)]


def _alike(one: p.Node, other: p.Node) -> bool:
    return type(one) is type(other) and _kept(one) == _kept(other)


def _kept(node: p.Node) -> str:
    """The shape of a node's state, over an input without the columns that only the rest of the node needs."""
    bare = node.stored()
    return shape(bare if bare is node else prune_columns(bare))


def _difference(old: p.Node, new: p.Node) -> str:
    found = new.difference(old)
    if found is not None:
        return found
    if [shape(c) for c in old.children] == [shape(c) for c in new.children]:
        own = [", ".join(e.sql() for e in n.expressions) or "nothing" for n in (old, new)]
        return f"the old one has {own[0]} in place of {own[1]}"
    return "its input or its keys are different"
