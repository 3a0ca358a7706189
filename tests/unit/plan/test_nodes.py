"""What plan nodes declare: every class, without a list that could be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest
from sqlglot import exp

from penstock.plan import nodes as p
from penstock.plan.nodes.base import Compared
from penstock.plan.passes import run_passes
from penstock.spark.nodes import COMPILED

CLASSES = [v for v in vars(p).values() if isinstance(v, type) and issubclass(v, p.Node) and v not in (p.Node, p.Linear)]


def scan(*names: str) -> p.Scan:
    return p.Scan("t", 1, tuple((f"t${n}", n) for n in names), is_changelog=True)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_a_field_with_column_names_exists(kind: type[p.Node]) -> None:
    assert set(kind.column_names) <= {f.name for f in fields(kind)}


def test_every_node_is_compiled() -> None:
    assert set(COMPILED) == set(CLASSES)


def test_a_node_that_declares_nothing_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="Lacking does not declare described, cost, compared, column_names"):

        class Lacking(p.Node):
            reads: ClassVar[p.Reads] = p.Reads.OWN


@dataclass(frozen=True)
class Sampled(p.Node):
    """A node that no pass and no text has ever heard of."""

    reads: ClassVar[p.Reads] = p.Reads.STORED
    column_names: ClassVar[tuple[str, ...]] = ("rate_name",)

    child: p.Node
    rate: p.Expr
    rate_name: str

    def described(self) -> str:
        return f"Sampled {self.rate.sql()}"

    @property
    def compared(self) -> Compared:
        return Compared()

    @property
    def cost(self) -> p.Cost:
        return p.Cost("a sample", "O(diff)")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.child.columns, self.rate_name)


def test_a_new_node_is_pruned_compared_and_explained_by_what_it_declares() -> None:
    from penstock.plan.explain import describe
    from penstock.plan.repeats import repeats, same

    def sampled(name: str) -> Sampled:
        rows = scan("a", "b", "c", "d")
        only_c = p.Filter(rows, p.Expr(exp.Not(this=exp.Is(this=p.col("t$c").node, expression=exp.Null()))))
        return Sampled(only_c, p.col("t$b"), name)

    root = run_passes(p.Project(sampled("rate"), (p.Named("x", p.col("t$a")),)))
    (made,) = [n for n in root.walk() if isinstance(n, Sampled)]
    # c is only filtered by, so it is not stored; d is not read.
    assert made.child.columns == ("t$a", "t$b")
    assert describe(made) == "Sampled `t$b` ±"
    assert made.introduced == {"rate"} and made.stateful
    assert same(sampled("x"), sampled("y"))
    both = p.SetOp("except", sampled("x"), sampled("y"))
    assert set(repeats(both).values()) == {1}


def test_children_are_the_fields_that_are_nodes() -> None:
    one, other = scan("a"), scan("b")
    join = p.Join(one, other, "inner", (p.col("t$a"),), (p.col("t$b"),))
    assert join.children == (one, other)
    assert join.with_children((one, other)) is join
    assert join.with_children((other, one)).left is other
    union = p.Union((one, other))
    assert union.with_children((other, one)).inputs == (other, one)
    assert scan("a").children == ()
