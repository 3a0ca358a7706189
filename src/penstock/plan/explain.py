"""A plan as a tree of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.plan.nodes import Node, Query
from penstock.plan.nodes.text import interval_text
from penstock.plan.repeats import repeats
from penstock.plan.room import with_room


def explain(query: Query, note: Callable[[Node], str] | None = None) -> str:
    """The tree, root first. `note` returns text to append to a node's line, such as its execution path and state.

    A subplan that is computed once and used in several places has a number, and is shown in full only at the first place.
    """
    return with_room(lambda: _explain(query, note))


def _explain(query: Query, note: Callable[[Node], str] | None) -> str:
    every = f" {interval_text(query.emit.every)}" if query.emit.every else ""
    order = f" order [{', '.join(map(str, query.order))}]" if query.order else ""
    lines = [f"Output [{', '.join(query.names)}] emit {query.emit.kind}{every}{order}"]
    _tree(query.root, "", True, lines, note, repeats(query.root), set())
    return "\n".join(lines)


def _tree(
    node: Node,
    indent: str,
    last: bool,
    lines: list[str],
    note: Callable[[Node], str] | None,
    places: Mapping[int, int],
    shown: set[int],
) -> None:
    branch = "└─ " if last else "├─ "
    part = places.get(id(node))
    if part in shown:
        lines.append(f"{indent}{branch}Part {part} again → [{', '.join(node.columns)}]{' ±' if node.changelog else ''}")
        return
    name = ""
    if part is not None:
        shown.add(part)
        name = f"Part {part}: "
    extra = note(node) if note is not None else ""
    lines.append(f"{indent}{branch}{name}{describe(node)}{'  ' + extra if extra else ''}")
    deeper = indent + ("   " if last else "│  ")
    for i, child in enumerate(node.children):
        _tree(child, deeper, i == len(node.children) - 1, lines, note, places, shown)


def describe(node: Node) -> str:
    """One line: the operator and its arguments, and `±` if rows can be retracted."""
    return f"{node.described()}{' ±' if node.changelog else ''}"
