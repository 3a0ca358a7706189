"""Random SELECTs over tables and views: joins, subqueries, groups, set operations, order and limits, OVER."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.generated.aggregates import Aggregates, Call
from tests.generated.expressions import COMPARED, PLAIN_KINDS, Field, Fields


@dataclass(frozen=True)
class Relation:
    """What can stand in FROM: a name or a query in parentheses, and its columns as (name, kind, small)."""

    text: str
    columns: tuple[tuple[str, str, bool], ...]

    def fields(self, alias: str) -> list[Field]:
        return [Field(f"{alias}.{n}", k, small) for n, k, small in self.columns]


@dataclass
class Select:
    """A query and its output columns. `duck`: DuckDB can be asked; `spark`: Spark batch can."""

    sql: str
    columns: tuple[tuple[str, str, bool], ...]
    duck: bool = True
    spark: bool = True

    def asked(self, duck: bool, spark: bool) -> None:
        """Notes who cannot be asked."""
        self.duck, self.spark = self.duck and duck, self.spark and spark
        # Spark has no < ALL (SELECT …).
        self.spark = self.spark and re.search(r"[<>=] (ANY|ALL) \(SELECT", self.sql) is None
        # Over no rows DuckDB has a row for the total of grouping sets, where Spark has none.
        sets = any(f"{form} (" in self.sql for form in ("ROLLUP", "CUBE", "GROUPING SETS"))
        self.duck = self.duck and (self.spark or not sets)


@dataclass
class Scope:
    """The FROM clause of one block, the fields that it offers and the conditions that go with it."""

    text: str
    fields: list[Field]
    where: list[str] = field(default_factory=list)


class Queries:
    """Makes SELECTs over some relations."""

    def __init__(self, chance: Random, relations: Sequence[Relation], *, changing: bool = True) -> None:
        """`changing`: the relations are tables and views of tables, which can be joined without an equality."""
        self.chance = chance
        self.changing = changing
        self.relations = list(relations)
        self.make = Aggregates(chance)
        self._ctes: list[tuple[str, Relation]] = []
        self._names = 0
        self._duck = True
        self._spark = True

    def query(self) -> Select:
        """One whole statement, with its CTEs, that DuckDB or Spark can be asked."""
        while True:
            made = self._query()
            if made.duck or made.spark:
                return made

    def _query(self) -> Select:
        self._ctes, self._names, self._duck, self._spark = [], 0, True, True
        body = self._body(self.chance.choices([0, 1, 2], [6, 3, 1])[0])
        if self._ctes:
            body.sql = f"WITH {', '.join(f'{n} AS {r.text}' for n, r in self._ctes)} {body.sql}"
        return self._asked(body)

    def base(self) -> Select:
        """A query over tables alone, for others to read."""
        while True:
            self._duck, self._spark = True, True
            made = self._asked(self.chance.choice([self._plain, self._grouped])(0))
            if made.duck or made.spark:
                return made

    def _asked(self, made: Select) -> Select:
        made.asked(self._duck, self._spark)
        return made

    def _use(self, call: Call) -> None:
        self._duck &= call.duck
        self._spark &= call.spark

    def _body(self, depth: int) -> Select:
        c = self.chance
        shapes = [self._plain, self._grouped, self._analytic, self._set_operation, self._top, self._top_per_group]
        weights = [26, 30, 16, 12, 9, 9]
        return c.choices(shapes, weights)[0](depth)

    # FROM

    def _alias(self) -> str:
        self._names += 1
        return f"r{self._names}"

    def _relation(self, depth: int) -> Relation:
        c = self.chance
        roll = c.random()
        if depth > 0 and roll < 0.18:
            return self._derived(self._body(depth - 1))
        if depth > 0 and roll < 0.26:
            if self._ctes and c.random() < 0.5:
                return Relation(*self._named(c.choice(self._ctes)))
            made = self._derived(self._body(depth - 1))
            self._ctes.append((f"w{len(self._ctes)}", made))
            return Relation(*self._named(self._ctes[-1]))
        if roll > 0.97 and (made := self._turned(c.choice(self.relations))) is not None:
            return made
        if roll < 0.29:
            rows = ", ".join(f"({i}, '{s}')" for i, s in zip(c.sample(range(4), 2), "ab", strict=True))
            return Relation(f"(SELECT * FROM (VALUES {rows}) AS v(k, s))", (("k", "int", True), ("s", "str", True)))
        return c.choice(self.relations)

    def _turned(self, of: Relation) -> Relation | None:
        """PIVOT or UNPIVOT of some columns."""
        c = self.chance
        kinds = {n: k for n, k, _ in of.columns}
        values = [n for n, k in kinds.items() if k in ("int", "dec")]
        names = [n for n, k in kinds.items() if k in ("int", "str")]
        self._duck = False
        if c.random() < 0.5 and len(names) > 1 and values:
            key, by, value = c.choice(list(kinds)), c.choice(names), c.choice(values)
            if kinds[key] not in PLAIN_KINDS or len({key, by, value}) < 3:
                return None
            wanted = ("0 AS x", "2 AS y") if kinds[by] == "int" else ("'a' AS x", "NULL AS y", "'' AS z")
            text = f"(SELECT {key}, {by}, {value} FROM {of.text} AS {self._alias()})"
            calls = f"sum({value}) AS s, count(*) AS n"
            columns = [(key, kinds[key], True)]
            for name in (w[-1] for w in wanted):
                columns += [(f"{name}_s", kinds[value], False), (f"{name}_n", "int", False)]
            return Relation(f"(SELECT * FROM {text} PIVOT ({calls} FOR {by} IN ({', '.join(wanted)})))", tuple(columns))
        alike = [(a, b) for a in kinds for b in kinds if a < b and kinds[a] == kinds[b] and kinds[a] in COMPARED]
        if not alike:
            return None
        a, b = c.choice(alike)
        text = f"(SELECT {a}, {b} FROM {of.text} AS {self._alias()})"
        nulls = c.choice(["", " INCLUDE NULLS"])
        turned = f"(SELECT * FROM {text} UNPIVOT{nulls} (v FOR name IN ({a}, {b} AS other)))"
        return Relation(turned, (("name", "str", True), ("v", kinds[a], True)))

    def _named(self, cte: tuple[str, Relation]) -> tuple[str, tuple[tuple[str, str, bool], ...]]:
        return cte[0], cte[1].columns

    def _derived(self, query: Select) -> Relation:
        return Relation(f"({query.sql})", query.columns)

    def _from(self, depth: int) -> Scope:
        c = self.chance
        first = self._relation(depth)
        alias = self._alias()
        scope = Scope(f"{first.text} AS {alias}", first.fields(alias))
        joins = c.choices([0, 1, 2], [50, 40, 10])[0]
        if joins == 1 and c.random() < 0.12 and self._using(scope, first):
            return scope
        if not joins and c.random() < 0.06:
            self._exploded(scope)
            return scope
        for _ in range(joins):
            self._join(scope, depth)
        if c.random() < 0.06:
            self._lateral(scope)
        if c.random() < 0.03:
            self._crossed(scope)
        return scope

    def _crossed(self, scope: Scope) -> None:
        """Every row beside the one row of a total."""
        inner, alias, name = self.chance.choice(self.relations), self._alias(), self._alias()
        call = self.make.aggregate(inner.fields(alias))
        self._use(call)
        scope.text += f" CROSS JOIN (SELECT {call.text} AS x FROM {inner.text} AS {alias}) AS {name}"
        scope.fields.append(Field(f"{name}.x", call.kind, False))

    def _join(self, scope: Scope, depth: int) -> None:
        c = self.chance
        right = self._relation(depth)
        alias = self._alias()
        fields = right.fields(alias)
        keys = self._keys(scope.fields, fields)
        if not keys:
            right = c.choice(self.relations)
            fields = right.fields(alias)
            keys = self._keys(scope.fields, fields)
        if not keys:
            return
        if self.changing and c.random() < 0.1 and "SELECT" not in right.text:
            pairs = [(a, b) for a in scope.fields for b in fields if a.kind == b.kind and a.kind in COMPARED]
            a, b = c.choice(pairs)
            keys = [f"{a.text} {c.choice(['<', '<=', '>', '<>'])} {b.text}"]
        if c.random() < 0.1:
            scope.text += f", {right.text} AS {alias}"
            scope.where += keys
            scope.fields += fields
            return
        kind = c.choice(["JOIN", "JOIN", "INNER JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])  # fmt: skip
        if c.random() < 0.35:
            keys.append(self.make.condition([*scope.fields, *fields], 1))
        if kind == "INNER JOIN" and self.changing and c.random() < 0.2:
            # Spark and a view read a condition here.
            kind, self._duck = "CROSS JOIN", False
        scope.text += f" {kind} {right.text} AS {alias} ON {' AND '.join(keys)}"
        if "SEMI" not in kind and "ANTI" not in kind:
            scope.fields += fields

    def _using(self, scope: Scope, left: Relation) -> bool:
        """A join with USING: its columns have no table, and are the side that is there."""
        c = self.chance
        right = c.choice(self.relations)
        shared = [
            (n, k) for n, k, _ in left.columns for m, j, _ in right.columns if n == m and k == j and k in COMPARED
        ]
        if not shared:
            return False
        names = c.sample(shared, min(len(shared), c.choice([1, 1, 2])))
        kind = c.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        alias = self._alias()
        scope.text += f" {kind} {right.text} AS {alias} USING ({', '.join(n for n, _ in names)})"
        if "SEMI" in kind or "ANTI" in kind:
            return True
        taken = {n for n, _ in names}
        both = [*scope.fields, *right.fields(alias)]
        scope.fields = [f for f in both if f.text.split(".")[1] not in taken] + [Field(n, k) for n, k in names]
        return True

    def _exploded(self, scope: Scope) -> None:
        """One row for each element of an array made of columns."""
        c = self.chance
        found = [f for f in scope.fields if f.kind in ("int", "str", "date")]
        if not found:
            return
        chosen = c.choice(found)
        name = self._alias()
        more = self.make.of(scope.fields, chosen.kind, 1)
        function, columns = c.choice([("explode", "x"), ("posexplode", "p, x"), ("explode", "x")])
        outer = c.choice(["", " OUTER"])
        array = f"array({chosen.text}, {more})"
        if c.random() < 0.3:
            array = f"if({self.make.condition(scope.fields, 1)}, {array}, NULL)"
        scope.text += f" LATERAL VIEW{outer} {function}({array}) {name} AS {columns}"
        scope.fields.append(Field(f"{name}.x", chosen.kind))
        if function == "posexplode":
            scope.fields.append(Field(f"{name}.p", "int"))
        self._duck = False

    def _keys(self, left: Fields, right: Fields, count: int | None = None) -> list[str]:
        """Equalities between both sides."""
        c = self.chance
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.kind in COMPARED]
        named = [p for p in pairs if p[0].text.split(".")[-1] == p[1].text.split(".")[-1]]
        if not pairs:
            return []
        out = []
        for _ in range(count or c.choice([1, 1, 1, 2])):
            a, b = c.choice(named) if named and c.random() < 0.7 else c.choice(pairs)
            x, y = a.text, b.text
            if c.random() < 0.15:
                x = self.make.of([a], a.kind, 1)
                x = x if a.text in x else a.text
            out.append(f"{x} {'<=>' if c.random() < 0.08 else '='} {y}")
        return out

    def _lateral(self, scope: Scope) -> None:
        c = self.chance
        inner = c.choice(self.relations)
        alias, name = self._alias(), self._alias()
        fields = inner.fields(alias)
        keys = self._keys([f for f in scope.fields if "." in f.text], fields, 1)
        if not keys:
            return
        where = " AND ".join([*keys, self.make.condition(fields, 1)])
        if c.random() < 0.4:
            call = self.make.aggregate(fields)
            self._use(call)
            body, columns = f"SELECT {call.text} AS x FROM", (("x", call.kind, False),)
        else:
            chosen = c.choices(fields, k=2)
            body = f"SELECT {chosen[0].text} AS x, {chosen[1].text} AS y FROM"
            columns = (("x", chosen[0].kind, True), ("y", chosen[1].kind, True))  # type: ignore[assignment]
            if c.random() < 0.4:
                where += f" ORDER BY {self.make.total_order(fields)} LIMIT {c.randint(1, 2)}"
                # Where the keys differ in type, Spark 4.3 takes the first rows of all outer rows together.
                self._spark = False
        lateral = f"LATERAL ({body} {inner.text} AS {alias} WHERE {where}) AS {name}"
        scope.text += f" LEFT JOIN {lateral} ON true" if c.random() < 0.5 else f" JOIN {lateral} ON true"
        scope.fields += Relation("", columns).fields(name)

    # WHERE

    def _where(self, scope: Scope, depth: int) -> str:
        c = self.chance
        parts = list(scope.where)
        if c.random() < 0.45:
            parts.append(self.make.condition(scope.fields, 2))
        if c.random() < 0.22:
            part = self._subquery(scope.fields, depth)
            if part is not None:
                other = self.make.condition(scope.fields, 1)
                parts.append(c.choice([part] * 5 + [f"({other} OR {part})", f"(NOT ({part}))", f"({part} OR {other})"]))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _subquery(self, outer: Fields, depth: int) -> str | None:
        """A condition with a subquery: EXISTS, IN, or a comparison with a scalar one."""
        c = self.chance
        # A name without a table would be one of the inner query.
        outer = [f for f in outer if "." in f.text]
        inner = self._relation(depth - 1)
        alias = self._alias()
        fields = inner.fields(alias)
        source = f"FROM {inner.text} AS {alias}"
        keys = self._keys(outer, fields, c.choice([1, 1, 2]))
        own = self.make.condition(fields, 1)
        no = c.choice(["", "NOT "])
        match c.randrange(5):
            case 0 | 1 if keys:
                more = [self.make.condition([*outer, *fields], 1)] if c.random() < 0.5 else [own]
                return f"{no}EXISTS (SELECT 1 {source} WHERE {' AND '.join(keys + more)})"
            case 2 | 3:
                pairs = [(a, b) for a in outer for b in fields if a.kind == b.kind and a.kind in COMPARED]
                if not pairs:
                    return None
                a, b = c.choice(pairs)
                where = [own]
                if keys and c.random() < 0.4:
                    where += keys
                body = f"(SELECT {b.text} {source} WHERE {' AND '.join(where)})"
                if c.random() < 0.1:
                    return f"{a.text} {c.choice(['<', '>=', '='])} {c.choice(['ANY', 'ALL'])} {body}"
                return f"{a.text} {no}IN {body}"
            case _:
                value = self._scalar(outer, fields, source, keys)
                if value is None:
                    return None
                text, kind = value
                return f"{self.make.leaf(outer, kind)} {c.choice(['<', '<=', '>', '=', '<>'])} {text}"

    def _scalar(self, outer: Fields, fields: Fields, source: str, keys: list[str]) -> tuple[str, str] | None:
        c = self.chance
        found = [f for f in fields if f.kind in ("int", "str", "dec", "date")]
        if not found:
            return None
        chosen = c.choice(found)
        call, kind = c.choice([(f"max({chosen.text})", chosen.kind), (f"min({chosen.text})", chosen.kind), ("count(*)", "int"), (f"count({chosen.text})", "int")])  # fmt: skip
        if c.random() < 0.2:
            call = f"{call} + 1" if kind == "int" else f"coalesce({call}, {self.make.literal(kind)})"
        where = list(keys) if c.random() < 0.6 else []
        if where and c.random() < 0.15:
            # The same in a derived table, which knows the outer query, too.
            name = source.rsplit(" AS ", 1)[1]
            source, where = f"FROM (SELECT {name}.* {source} WHERE {' AND '.join(where)}) AS {name}", []
        if c.random() < 0.4:
            where.append(self.make.condition(fields, 1))
        if where and c.random() < 0.15:
            pairs = [(a, b) for a in outer for b in fields if a.kind == b.kind and a.kind in COMPARED]
            where += [f"{a.text} {c.choice(['<', '>='])} {b.text}" for a, b in pairs[:1]]
        return f"(SELECT {call} {source}{' WHERE ' + ' AND '.join(where) if where else ''})", kind

    # Blocks

    def _items(self, items: Sequence[tuple[str, str, bool]]) -> tuple[str, tuple[tuple[str, str, bool], ...]]:
        listed = ", ".join(f"{text} AS c{i}" for i, (text, _, _) in enumerate(items))
        return listed, tuple((f"c{i}", kind, small) for i, (_, kind, small) in enumerate(items))

    def _values(self, fields: Fields, count: int) -> list[tuple[str, str, bool]]:
        """Select items: fields as they are, and expressions."""
        c = self.chance
        out: list[tuple[str, str, bool]] = []
        for _ in range(count):
            if fields and c.random() < 0.6:
                chosen = c.choice(list(fields))
                out.append((chosen.text, chosen.kind, chosen.small))
            else:
                text, kind = self.make.any(fields)
                out.append((text, kind, False))
        return out

    def _plain(self, depth: int) -> Select:
        c = self.chance
        scope = self._from(depth)
        where = self._where(scope, depth)
        if c.random() < 0.04 and " AS " in scope.text and all("." in f.text for f in scope.fields):
            alias = c.choice(scope.fields).text.split(".")[0]
            whole = [f for f in scope.fields if f.text.startswith(f"{alias}.")]
            names = tuple((f.text.split(".")[1], f.kind, f.small) for f in whole)
            return Select(f"SELECT {alias}.* FROM {scope.text}{where}", names)
        items = self._values(scope.fields, c.randint(1, 4))
        if c.random() < 0.08:
            inner = c.choice(self.relations)
            alias = self._alias()
            fields = inner.fields(alias)
            outer = [f for f in scope.fields if "." in f.text]
            value = self._scalar(outer, fields, f"FROM {inner.text} AS {alias}", self._keys(outer, fields))
            if value is not None:
                text, kind = value
                if c.random() < 0.3:
                    text = f"coalesce({text}, {self.make.leaf(scope.fields, kind)})"
                items.append((text, kind, False))
        if c.random() < 0.06:
            part = self._subquery(scope.fields, depth)
            if part is not None and c.random() < 0.5:
                items.append((f"CASE WHEN {part} THEN 1 ELSE 0 END", "int", False))
            elif part is not None:
                items.append((f"({part})", "bool", False))
                # Spark 4.3 has FALSE for an IN that is neither true nor false.
                self._spark &= " IN (SELECT" not in part
        distinct = ""
        if c.random() < 0.2 and all(k != "real" for _, k, _ in items):
            distinct = "DISTINCT "
        listed, columns = self._items(items)
        return Select(f"SELECT {distinct}{listed} FROM {scope.text}{where}", columns)

    def _grouped(self, depth: int) -> Select:
        c = self.chance
        scope = self._from(depth)
        where = self._where(scope, depth)
        plain = [f for f in scope.fields if f.kind in PLAIN_KINDS]
        keys = [
            Field(f.text, f.kind, f.small) for f in c.sample(plain, min(len(plain), c.choice([0, 1, 1, 1, 2, 2, 3])))
        ]
        if keys and c.random() < 0.3:
            kind = c.choice(["int", "str", "bool"])
            keys[0] = Field(self.make.of(plain, kind, 2), kind, False)
            if not any(f.text in keys[0].text for f in plain):
                keys[0] = c.choice(plain)
        keys = list({k.text: k for k in keys}.values())
        calls = [self.make.aggregate(scope.fields) for _ in range(c.randint(1, 3))]
        for call in calls:
            self._use(call)
        items = [(k.text, k.kind, k.small) for k in keys if c.random() < 0.9]
        plain_items = len(items) == len(keys)
        items += [(call.text, call.kind, False) for call in calls]
        if c.random() < 0.25:
            over = [*keys, *(call.field for call in calls)]
            text, kind = self.make.any(over, 1)
            items.append((text, kind, False))
            plain_items = False
        group, sets = self._group_by(keys, plain_items)
        if sets and keys and c.random() < 0.5:
            items.append((f"grouping({keys[0].text})", "int", True))
        having = ""
        if c.random() < 0.2:
            having = f" HAVING {self.make.condition([call.field for call in calls], 1)}"
            if c.random() < 0.2:
                inner, alias = c.choice(self.relations), self._alias()
                having += f" AND count(*) <> (SELECT count(*) FROM {inner.text} AS {alias})"
        listed, columns = self._items(items)
        return Select(f"SELECT {listed} FROM {scope.text}{where}{group}{having}", columns)

    def _group_by(self, keys: list[Field], plain: bool) -> tuple[str, bool]:
        c = self.chance
        texts = [k.text for k in keys]
        if not texts:
            return "", False
        if len(texts) < 2 or c.random() < 0.7:
            return c.choice(
                [f" GROUP BY {', '.join(texts)}"] * 8 + [" GROUP BY ALL"]
            ) if plain else f" GROUP BY {', '.join(texts)}", False
        form = c.randrange(3)
        if not self._spark:
            return f" GROUP BY {', '.join(texts)}", False
        if form < 2:
            return f" GROUP BY {('ROLLUP', 'CUBE')[form]} ({', '.join(texts)})", True
        sets = [texts, [texts[0]], [texts[1]], []]
        chosen = [s for s in sets if c.random() < 0.7] or [texts]
        if texts not in chosen:
            chosen.append(texts)
        return f" GROUP BY GROUPING SETS ({', '.join('(' + ', '.join(s) + ')' for s in chosen)})", True

    def _analytic(self, depth: int) -> Select:
        c = self.chance
        scope = self._from(depth)
        where = self._where(scope, depth)
        items = self._values(scope.fields, c.randint(1, 3))
        for number in range(c.randint(1, 2)):
            # Two that tell equal rows apart, each in an order of its own, could be paired in several ways.
            call = self.make.analytic(scope.fields, alike=number > 0)
            self._use(call)
            items.append((call.text, call.kind, False))
        listed, columns = self._items(items)
        named = ""
        over = items[-1][0].partition(" OVER ")[2]
        if c.random() < 0.15 and items[-1][0].count(" OVER ") == 1 and " BETWEEN " not in over:
            listed = listed.replace(f" OVER {over}", " OVER w")
            named = f" WINDOW w AS {over}"
        return Select(f"SELECT {listed} FROM {scope.text}{where}{named}", columns)

    def _top_per_group(self, depth: int) -> Select:
        c = self.chance
        scope = self._from(depth)
        where = self._where(scope, depth)
        if not all(f.kind in PLAIN_KINDS for f in scope.fields):
            return self._plain(depth)
        plain = [f for f in scope.fields if f.kind in COMPARED]
        partition = c.choice(plain).text if plain else "1"
        items = self._values(scope.fields, c.randint(1, 3))
        listed, columns = self._items(items)
        function = c.choice(["row_number", "row_number", "rank", "dense_rank"])
        order = self.make.total_order(scope.fields if function == "row_number" else c.sample(scope.fields, 1))
        over = f"{function}() OVER (PARTITION BY {partition} ORDER BY {order})"
        limit = c.choice(["<= 1", "<= 2", "= 1", "< 3", "= 2"])
        if c.random() < 0.3:
            return Select(f"SELECT {listed} FROM {scope.text}{where} QUALIFY {over} {limit}", columns)
        shown = ", ".join(n for n, _, _ in columns) + (", rn" if c.random() < 0.4 else "")
        if shown.endswith(", rn"):
            columns = (*columns, ("rn", "int", True))
        return Select(
            f"SELECT {shown} FROM (SELECT {listed}, {over} AS rn FROM {scope.text}{where}) AS {self._alias()} "
            f"WHERE rn {limit}",
            columns,
        )

    def _set_operation(self, depth: int) -> Select:
        c = self.chance
        kinds = c.choices(["int", "int", "str", "str", "dec", "date"], k=c.randint(1, 3))
        left, right = (self._of_kinds(kinds, depth - 1) for _ in range(2))
        word = c.choice(["UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
        sql = f"{left} {word} {right}"
        roll = c.random()
        if roll < 0.3:
            third = c.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
            sql = f"({sql})" if roll < 0.15 else sql
            sql += f" {third} {self._of_kinds(kinds, depth - 1)}"
        elif roll < 0.4:
            order = ", ".join(self.make.direction(f"c{i}") for i in range(len(kinds)))
            sql += f" ORDER BY {order} LIMIT {c.randint(1, 4)}"
        return Select(sql, tuple((f"c{i}", k, False) for i, k in enumerate(kinds)))

    def _of_kinds(self, kinds: Sequence[str], depth: int) -> str:
        scope = self._from(depth)
        where = self._where(scope, depth)
        listed = ", ".join(
            f"{self.make.leaf(scope.fields, k) if self.chance.random() < 0.7 else self.make.of(scope.fields, k)} AS c{i}"
            for i, k in enumerate(kinds)
        )
        return f"SELECT {listed} FROM {scope.text}{where}"

    def _top(self, depth: int) -> Select:
        """ORDER BY every output column, then LIMIT: rows that tie are equal."""
        c = self.chance
        inner = c.choice([self._plain, self._grouped, self._analytic])(depth)
        kept = [(n, k, s) for n, k, s in inner.columns if k in PLAIN_KINDS]
        if not kept:
            return inner
        alias = self._alias()
        fields = [Field(f"{alias}.{n}", k, s) for n, k, s in kept]
        listed, columns = self._items([(f.text, f.kind, f.small) for f in fields])
        offset = f" OFFSET {c.randint(1, 3)}" if c.random() < 0.3 else ""
        order = self.make.total_order(fields)
        sql = f"SELECT {listed} FROM ({inner.sql}) AS {alias} ORDER BY {order} LIMIT {c.randint(1, 5)}{offset}"
        return Select(sql, columns)
