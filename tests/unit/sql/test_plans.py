"""SQL in, plan out: every block of `fixtures/plans.txt` is a query and its EXPLAIN tree; those of `refused.txt` are errors."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import Catalog, blocks

from penstock.errors import PenstockError
from penstock.plan.explain import explain
from penstock.plan.nodes import Query


@pytest.mark.parametrize(("sql", "expected"), blocks("plans.txt"))
def test_plan(catalog: Catalog, sql: str, expected: str) -> None:
    assert explain(catalog.plan(sql)) == expected


@pytest.mark.parametrize(("sql", "expected"), blocks("refused.txt"))
def test_refusal_has_code_place_sentence_and_hint(catalog: Catalog, sql: str, expected: str) -> None:
    with pytest.raises(PenstockError) as caught:
        catalog.plan(sql)
    e = caught.value
    assert e.position is not None and e.sql == sql
    lines = [f"{e.code} {e.position.line}:{e.position.column}+{e.position.length} {e.detail}"]
    assert "\n".join(lines + ([e.hint] if e.hint else [])) == expected


def test_every_reference_of_a_plan_is_a_column_of_its_child(plans: dict[str, Query]) -> None:
    from penstock.plan.nodes import Aggregate, Filter, Join, Project

    for sql, plan in plans.items():
        for node in plan.root.walk():
            match node:
                case Filter():
                    assert node.predicate.refs <= set(node.child.columns), sql
                case Project():
                    assert all(i.expr.refs <= set(node.child.columns) for i in node.items), sql
                case Aggregate():
                    assert all(k.expr.refs <= set(node.child.columns) for k in node.keys), sql
                    assert all(a.refs <= set(node.child.columns) for c in node.aggs for a in c.args), sql
                case Join():
                    assert all(k.refs <= set(node.left.columns) for k in node.left_keys), sql
                    assert all(k.refs <= set(node.right.columns) for k in node.right_keys), sql


def test_names_are_found_without_regard_to_case_and_kept_as_written(catalog: Catalog) -> None:
    assert catalog.plan("SELECT K, S.V AS Total FROM S").names == ("K", "Total")


def test_places_are_those_of_the_whole_script(catalog: Catalog) -> None:
    from penstock.sql.bind import bind
    from penstock.sql.script import parse_script
    from penstock.sql.statements import CreateStream

    script = "CREATE STREAM a AS SELECT k FROM s;\n\n  CREATE STREAM b AS\n    SELECT nope FROM s;"
    second = parse_script(script)[1]
    assert isinstance(second, CreateStream)
    with pytest.raises(PenstockError) as caught:
        bind(second.query, catalog)
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (4, 12)
    assert "^^^^" in caught.value.render()


def test_sixty_chained_joins_with_using_have_a_plan(new_catalog: type[Catalog]) -> None:
    many = new_catalog("".join(f"CREATE TABLE j{i} (k INT, c{i} INT);" for i in range(60)))
    joins = " ".join(f"JOIN j{i} USING (k)" for i in range(1, 60))
    assert many.plan(f"SELECT * FROM j0 {joins}").names == ("k", *(f"c{i}" for i in range(60)))
