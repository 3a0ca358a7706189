"""Random traces of commits, and the plain Python model of the tables that they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.generated.schemas import Row, Table, random_rows

import penstock


@dataclass(frozen=True)
class Change:
    """A part of a commit: rows put in (`insert`), whole rows taken out (`delete`), or an UPDATE or DELETE statement."""

    table: str
    action: str
    rows: tuple[Row, ...] = ()
    where: tuple[str, Any] | None = None
    assign: tuple[str, Any] | None = None

    def sql(self) -> str:
        """The statement, for `update` and `remove`."""
        assert self.where is not None
        name, value = self.where
        condition = f"{name} IS NULL" if value is None else f"{name} = {literal(value)}"
        if self.action == "remove":
            return f"DELETE FROM {self.table} WHERE {condition}"
        assert self.assign is not None
        return f"UPDATE {self.table} SET {self.assign[0]} = {literal(self.assign[1])} WHERE {condition}"


Commit = tuple[Change, ...]


def literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


class Model:
    """The contents of the tables as lists of rows."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = {t.name: t for t in tables}
        self.rows: dict[str, list[Row]] = {t.name: [] for t in tables}

    def apply(self, commit: Commit) -> Commit:
        """Changes the contents; what was really done: rows that are not there are not deleted."""
        return tuple(self._one(change) for change in commit)

    def _one(self, change: Change) -> Change:
        table, rows = self.tables[change.table], self.rows[change.table]
        if change.action == "insert":
            if table.keyed:
                new = {r[0]: r for r in change.rows}
                rows[:] = [r for r in rows if r[0] not in new] + list(new.values())
            else:
                rows.extend(change.rows)
            return change
        if change.action == "delete":
            gone = []
            for row in change.rows:
                if row in rows:
                    rows.remove(row)
                    gone.append(row)
            return Change(change.table, "delete", tuple(gone))
        assert change.where is not None
        names = [c.name for c in table.columns]
        at, value = names.index(change.where[0]), change.where[1]
        hit = [r for r in rows if r[at] == value]
        rows[:] = [r for r in rows if r[at] != value]
        if change.action == "update":
            assert change.assign is not None
            target = names.index(change.assign[0])
            rows.extend((*r[:target], change.assign[1], *r[target + 1 :]) for r in hit)
        return change


def perform(db: penstock.Database, commit: Commit) -> None:
    """The commit through the database: one transaction."""
    with db.transaction() as transaction:
        for change in sorted(commit, key=lambda c: c.action not in ("update", "remove")):
            if change.action == "insert":
                transaction.insert(change.table, list(change.rows))
            elif change.action == "delete":
                transaction.delete(change.table, list(change.rows))
            else:
                transaction.execute(change.sql())


def random_trace(chance: Random, tables: Sequence[Table], changes: int) -> list[Commit]:
    """A load, changes, and deletes until nothing is left; rows and nothing but rows where the tables are sources."""
    model = Model(tables)
    if tables[0].source:
        return [_load(chance, tables, 5 // (i + 1)) for i in range(changes + 2)]
    out: list[Commit] = []
    load = _load(chance, tables, 5)
    out.append(model.apply(load))
    statement = chance.randrange(changes)
    for i in range(changes):
        out.append(model.apply(_commit(chance, tables, model.rows, with_statement=i == statement)))
    out.append(model.apply(tuple(Change(name, "delete", tuple(rows)) for name, rows in model.rows.items() if rows)))
    return out


def _load(chance: Random, tables: Sequence[Table], least: int) -> Commit:
    return tuple(
        Change(t.name, "insert", tuple(random_rows(chance, t, chance.randint(least, 2 * least + 4))))
        for t in tables
        if chance.random() < 0.9
    )


def _commit(chance: Random, tables: Sequence[Table], rows: Mapping[str, list[Row]], *, with_statement: bool) -> Commit:
    out: list[Change] = []
    others = list(tables)
    if with_statement:
        others.remove(target := chance.choice(tables))
        out.append(_statement(chance, target))
    for table in chance.sample(others, chance.randint(1, len(others))):
        have = rows[table.name]
        if have and chance.random() < 0.7:
            gone = chance.sample(have, chance.randint(1, max(1, len(have) // 2)))
            out.append(Change(table.name, "delete", tuple(gone)))
        if chance.random() < 0.7:
            new = random_rows(chance, table, chance.randint(1, 5))
            if not table.keyed and have and chance.random() < 0.5:
                new.append(chance.choice(have))
            out.append(Change(table.name, "insert", tuple(new)))
    return tuple(out)


def _statement(chance: Random, table: Table) -> Change:
    where = (chance.choice(["k", "s"]), None)
    value = chance.choice([None, 0, 1, 2]) if where[0] == "k" else chance.choice([None, "a", "b"])
    if chance.random() < 0.3:
        return Change(table.name, "remove", where=(where[0], value))
    assign: tuple[str, Any] = chance.choice(
        [("k", chance.choice([None, 0, 1])), ("s", chance.choice([None, "a", "new"]))]
    )
    return Change(table.name, "update", where=(where[0], value), assign=assign)
