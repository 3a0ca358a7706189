"""The stateful operators in docs/suites.md match the plan of each TPC-H and Nexmark query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.nexmark.queries import OBJECTS, QUERIES, create
from tests.spark.tpch.queries import QUERIES as TPCH
from tests.spark.tpch.tables import TABLES
from tests.unit.sql.conftest import Catalog

from penstock.plan import nodes as p
from penstock.plan.repeats import repeats

PAGE = Path(__file__).parents[3] / "docs" / "suites.md"


def operators(root: p.Node) -> str:
    """The stateful nodes, from the result down, with equal ones counted; a part that occurs twice is listed once."""
    names = []
    for n in _once(root, repeats(root), set()):
        match n:
            case p.Join(time_bound=p.IntervalBound()):
                names.append("interval Join")
            case p.Aggregate(session=p.SessionWindow()):
                names.append("Session")
            case p.Aggregate(mode=p.EmitMode.CLOSE):
                names.append("closing Aggregate")
            case p.Scan() | p.Filter() | p.Project() | p.WindowAssign():
                pass
            case _:
                names.append(type(n).__name__)
    return ", ".join(name if n == 1 else f"{n} × {name}" for name, n in Counter(names).items()) or "none"


def _once(node: p.Node, parts: dict[int, int], seen: set[int]) -> Iterator[p.Node]:
    part = parts.get(id(node))
    if part in seen:
        return
    if part is not None:
        seen.add(part)
    yield node
    for child in node.children:
        yield from _once(child, parts, seen)


def rows_of(section: str) -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| q")]
    return {row[0]: row[2] for row in cells if row[0] != "query"}


def test_tpch() -> None:
    catalog = Catalog(";\n".join(t.create() for t in TABLES.values()))
    assert rows_of("TPC-H") == {name: operators(catalog.plan(sql).root) for name, sql in TPCH.items()}
    assert len(TPCH) == 22


def test_nexmark() -> None:
    catalog = Catalog(";\n".join(create(o) for o in OBJECTS))
    assert rows_of("Nexmark") == {q.name: operators(catalog.plan(q.create()).root) for q in QUERIES}
    assert len(QUERIES) == 23
