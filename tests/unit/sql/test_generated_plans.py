"""Random SELECTs: the plan that binding and the passes make of each, written back as SQL, has the same answer as the SELECT."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.effort import EFFORT, times
from tests.generated.cases import Group
from tests.generated.compare import bag, difference
from tests.generated.oracles import CannotSay, Duck
from tests.generated.plans import plan_sql
from tests.generated.running import DOCUMENTED
from tests.generated.traces import Model
from tests.unit.sql.conftest import Catalog

from penstock.catalog.objects import Column
from penstock.errors import PenstockError
from penstock.sql.script import parse_script

CASES = 16 if EFFORT > 1 else 10
_TYPES = {"int": "bigint", "str": "string", "dec": "decimal(20,4)", "dbl": "double", "real": "double", "ts": "timestamp", "bool": "boolean"}  # fmt: skip


def catalog_of(group: Group) -> Catalog:
    catalog = Catalog(";".join(t.ddl() for t in group.tables))
    for base in group.bases:
        catalog.add(*parse_script(group.view(base.name, base.select.sql)))
        columns = tuple(Column(n, _TYPES.get(kind, kind)) for n, kind, _ in base.select.columns)
        catalog.objects[base.name] = replace(catalog.objects[base.name], columns=columns)
    return catalog


@pytest.mark.parametrize("seed", range(times(2, quick=1)))
def test_a_plan_means_what_its_select_says(seed: int) -> None:
    group = Group(seed, changes=2)
    catalog, duck, model = catalog_of(group), Duck(group.tables), Model(group.tables)
    model.apply(group.trace[0])
    duck.load(model.rows, {b.name: b.select.sql for b in group.bases if b.select.duck})
    compared = 0
    for number in range(CASES):
        select = group.case(number).select
        try:
            plan = catalog.plan(group.view("q", select.sql))
        except PenstockError as error:
            if error.code in DOCUMENTED and error.position is not None:
                continue
            raise
        # Over no rows DuckDB has a grand total in GROUPING SETS, Spark has none.
        if not select.duck or any(word in select.sql for word in ("ROLLUP", "CUBE", "GROUPING SETS")):
            continue
        try:
            got, wanted = bag(duck.answer(plan_sql(plan))), bag(duck.answer(select.sql))
        except CannotSay:
            continue
        assert difference(got, wanted) is None, f"case {number} of seed {seed}: {select.sql}\n{plan_sql(plan)}"
        compared += 1
    assert compared >= CASES // 4
