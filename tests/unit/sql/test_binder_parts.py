"""The parts of the binder, each by itself: what it makes of a draft. Every block of its fixture file is a query and what comes of it."""

from __future__ import annotations

import pytest
from sqlglot import exp
from tests.unit.sql.conftest import Catalog, blocks

from penstock.plan.explain import describe, explain
from penstock.plan.nodes import Node, Query
from penstock.sql import statements as st
from penstock.sql.bind.context import Context
from penstock.sql.bind.decorrelation import Decorrelated, Decorrelation
from penstock.sql.bind.draft import Draft
from penstock.sql.bind.groupby import GroupBy
from penstock.sql.bind.groupwindow import GroupWindow
from penstock.sql.bind.outputs import Outputs
from penstock.sql.bind.queries import Queries
from penstock.sql.bind.relations import From
from penstock.sql.bind.selectlist import SelectList
from penstock.sql.script import parse_script


def drafted(catalog: Catalog, sql: str) -> Draft:
    """A block of which only FROM is bound."""
    (s,) = parse_script(sql)
    assert isinstance(s, st.Select) and isinstance(s.query.ast, exp.Select)
    ctx = Context(s.query, catalog)
    bind = Queries(ctx).bind
    draft = Draft(ctx, s.query.ast, None, {}, bind)
    draft.node = From(ctx, {}, bind, draft.scope).bind(s.query.ast)
    return draft


def above_from(draft: Draft, node: Node) -> list[str]:
    """The nodes that were added to the plan of FROM, first those that were added last."""
    lines = []
    while node is not draft.node:
        lines.append(describe(node))
        (node,) = node.children
    return lines


@pytest.mark.parametrize(("sql", "expected"), blocks("selectlist.txt"))
def test_select_list(catalog: Catalog, sql: str, expected: str) -> None:
    draft = drafted(catalog, sql)
    before = draft.node
    items = SelectList(draft).items()
    lines = [f"{name} = {core.sql(dialect='spark')}" for core, name in items]
    if draft.node is not before:
        lines.append(describe(draft.node))
    assert "\n".join(lines) == expected


@pytest.mark.parametrize(("sql", "expected"), blocks("groupwindow.txt"))
def test_group_window(catalog: Catalog, sql: str, expected: str) -> None:
    draft = drafted(catalog, sql)
    window = GroupWindow(draft)
    plain = list(draft.select.args["group"].expressions)
    keys = window.assign(plain, None)
    left = ", ".join(n.sql(dialect="spark") for n in plain)
    lines = [f"keys [{', '.join(k.name for k in keys)}], besides [{left}]"]
    if window.session is not None:
        lines.append(f"session [{', '.join(k.name for k in window.session_keys())}]")
    else:
        lines.append(describe(draft.node))
    assert "\n".join(lines) == expected


@pytest.mark.parametrize(("sql", "expected"), blocks("groupby.txt"))
def test_group_by(catalog: Catalog, sql: str, expected: str) -> None:
    draft = drafted(catalog, sql)
    source = draft.node
    block = GroupBy(draft).bind(SelectList(draft).items())
    draft.node = source
    assert "\n".join(above_from(draft, block.node)) == expected


@pytest.mark.parametrize(("sql", "expected"), blocks("outputs.txt"))
def test_outputs(catalog: Catalog, sql: str, expected: str) -> None:
    draft = drafted(catalog, sql)
    source = draft.node
    items = SelectList(draft).items()
    bound = [draft.binder(attach=True).bind(core) for core, _ in items]
    block = Outputs(draft).finish(items, bound, lambda node, origin: node)
    draft.node = source
    assert "\n".join(above_from(draft, block.node)) == expected


@pytest.mark.parametrize(("sql", "expected"), blocks("decorrelation.txt"))
def test_decorrelation(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, sql: str, expected: str) -> None:
    """Each subquery: how it is joined, and its plan before any pass. Innermost first."""
    found: list[Decorrelated] = []
    decorrelate = Decorrelation.of

    def recorded(self: Decorrelation, *args: object, **more: object) -> Decorrelated:
        made = decorrelate(self, *args, **more)  # type: ignore[arg-type]
        found.append(made)
        return made

    monkeypatch.setattr(Decorrelation, "of", recorded)
    (s,) = parse_script(sql)
    assert isinstance(s, st.Select)
    Queries(Context(s.query, catalog)).bind(s.query.ast, None, {})
    lines = []
    for one in found:
        way = "over its domain" if one.over_domain else "by conditions"
        lines.append(f"{way} [{', '.join(p.sql(dialect='spark').replace('`', '') for p in one.parts)}]")
        lines += explain(Query(one.block.node, one.block.node.columns)).splitlines()[1:]
    assert "\n".join(lines) == expected
