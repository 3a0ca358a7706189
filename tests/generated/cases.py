"""A group: some tables, a trace over them, and as many SELECTs as one likes, all from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.generated.queries import Queries, Relation, Select
from tests.generated.schemas import Table, random_tables
from tests.generated.traces import Commit, random_trace


@dataclass(frozen=True)
class Case:
    """One SELECT; `number` counts the draws of its group."""

    number: int
    select: Select

    @property
    def name(self) -> str:
        return f"q{self.number}"


@dataclass(frozen=True)
class Base:
    """A view that the SELECTs of the group may read like a table."""

    name: str
    select: Select


class Group:
    """Everything that a seed stands for."""

    def __init__(self, seed: int, changes: int) -> None:
        self.seed = seed
        self.tables: tuple[Table, ...] = random_tables(Random(f"tables {seed}"))
        self.trace: list[Commit] = random_trace(Random(f"trace {seed}"), self.tables, changes)
        self._plain = [Relation(t.name, tuple((c.name, c.kind, True) for c in t.columns)) for t in self.tables]
        self._drawn = [Queries(Random(f"base {seed} {i}"), self._plain) for i in range(2)]
        self.bases = [Base(f"b{i}", queries.base()) for i, queries in enumerate(self._drawn)]

    def replace(self, i: int) -> Base:
        """Another base view instead of one that is refused. The SELECTs read its columns, so this comes before them."""
        self.bases[i] = Base(self.bases[i].name, self._drawn[i].base())
        return self.bases[i]

    def relations(self) -> list[Relation]:
        """What a SELECT may read."""
        return [*self._plain, *self._plain, *(Relation(b.name, b.select.columns) for b in self.bases)]

    def view(self, name: str, sql: str) -> str:
        """The statement; over sources it says that joins may keep every row."""
        option = " WITH (unbounded_state = true)" if self.tables[0].source else ""
        return f"CREATE MATERIALIZED VIEW {name} AS {sql}{option}"

    def case(self, number: int) -> Case:
        """One that DuckDB or Spark can be asked, with the views that it reads."""
        chance = Random(f"query {self.seed} {number}")
        queries = Queries(chance, self.relations(), changing=not self.tables[0].source)
        while True:
            made = queries.query()
            read = [b.select for b in self.bases if f" {b.name} " in made.sql]
            made.asked(all(select.duck for select in read), all(select.spark for select in read))
            if made.duck or made.spark:
                return Case(number, made)

    def cases(self) -> Iterator[Case]:
        number = 0
        while True:
            yield self.case(number)
            number += 1
