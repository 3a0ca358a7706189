"""The SQL that means the same in Spark and DuckDB: clauses, operators, functions and types on a list. Everything else is Spark's.

`tests/spark/test_engines.py` compares both engines on all of it. Result types are Spark's: what DuckDB would type differently is not on the list, or is cast.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from penstock.catalog.declared import char_length, is_declared, without_lengths
from penstock.catalog.objects import ObjectInfo
from penstock.plan.dialect import RAW
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.functions import name_of
from penstock.sql.trees import bare

_CLAUSES = frozenset({"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "kind"})
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_WHOLE, "float", "double")
_ORDERED = frozenset({*_NUMBERS, "string", "boolean", "date", "timestamp"})
"""Types that both engines compare, sort and group in the same way."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)
# DuckDB's planning time is cubic in the length of a chain of operators, and it refuses one of 1,000.
_MOST_OPERATORS = 200


class Unequal(Exception):
    """The engines might disagree; the text says on what."""


def duckdb_text(tree: exp.Expression, info: ObjectInfo) -> str:
    """The same query for DuckDB. Raises Unequal if Spark and DuckDB might disagree on it, or it is too large for DuckDB."""
    if not isinstance(tree, exp.Select):
        raise Unequal("it is not a plain SELECT")
    clause = next((k for k, v in tree.args.items() if v and k not in _CLAUSES), None)
    if clause is not None:
        raise Unequal(f"it has {clause.rstrip('_').upper()}")
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table):
        raise Unequal("it does not read one object")
    if sum(isinstance(n, exp.Binary) for n in tree.walk()) > _MOST_OPERATORS:
        raise Unequal(f"it has more than {_MOST_OPERATORS} operators")
    return _Select(tree, source.this, info).checked().sql(dialect="duckdb", identify=True)


def _plain(kind: str) -> str:
    """VARCHAR(n) is a string; CHAR(n) is not on the list, because Spark pads what it is compared with."""
    return kind if char_length(kind) else without_lengths(kind)


def _check_held(kind: str) -> None:
    """DuckDB holds values of these types in another form."""
    if (is_declared(kind) and not char_length(kind)) or "void" in kind:
        raise Unequal(f"it has a column of type {kind}")


class _Select:
    def __init__(self, tree: exp.Select, table: exp.Table, info: ObjectInfo) -> None:
        self.tree = tree
        self.table = table
        self.types = {c.name.lower(): _plain(c.type) for c in info.columns}
        self.names = frozenset(c.name for c in info.columns)
        self.alias = table.alias.lower()

    def checked(self) -> exp.Expression:
        """The query with Spark's result types and order of NULLs made explicit."""
        tree = self.tree
        if any(v for k, v in self.table.args.items() if k not in ("this", "alias")):
            raise Unequal("its table has a clause of its own")
        made: dict[str, str | None] = {}
        for item in tree.expressions:
            self._item(item, made)
        if (where := tree.args.get("where")) is not None:
            if has_aggregate(where.this):
                raise Unequal("WHERE has an aggregate")
            self._condition(where.this)
        self._group(tree.args.get("group"))
        self._grouped(made)
        if (having := tree.args.get("having")) is not None:
            self._condition(having.this)
        for key in tree.args["order"].expressions if tree.args.get("order") else []:
            self._sorted(key, made)
        for count in (tree.args.get("limit"), tree.args.get("offset")):
            if count is not None and not (isinstance(count.expression, exp.Literal) and count.expression.is_int):
                raise Unequal("LIMIT or OFFSET is not a number")
        explicit = tree.copy().transform(self._explicit)
        explicit.set("expressions", [self._as_written(e) for e in explicit.expressions])
        return explicit

    def _item(self, item: exp.Expression, made: dict[str, str | None]) -> None:
        if isinstance(item, exp.Star):
            if any(item.args.values()):
                raise Unequal("* has a clause of its own")
            self._whole()
            return
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            self._whole()
            return
        value = item.this if isinstance(item, exp.Alias) else item
        plain = self._column(value) if isinstance(value, exp.Column) else None
        kind = plain if plain is not None else self._type(value)
        if isinstance(item, exp.Alias):
            name = item.alias.lower()
            if name in self.types and not (isinstance(value, exp.Column) and value.name.lower() == name):
                # Clauses could refer to the column or to the alias.
                raise Unequal(f"{item.alias} is a column and an alias")
            made[name] = kind

    def _whole(self) -> None:
        for kind in self.types.values():
            _check_held(kind)

    def _group(self, group: exp.Expression | None) -> None:
        if group is None:
            return
        if any(v for k, v in group.args.items() if k != "expressions"):
            raise Unequal("GROUP BY has grouping sets")
        for key in group.expressions:
            if not isinstance(key, exp.Column):
                raise Unequal("a group key is not a column")
            self._ordered(self._column(key))

    def _grouped(self, made: Iterable[str]) -> None:
        """Spark says what is wrong with a column that is neither grouped nor in an aggregate."""
        group, having, order = (self.tree.args.get(k) for k in ("group", "having", "order"))
        items = [
            *self.tree.expressions,
            *([having] if having is not None else []),
            *([order] if order is not None else []),
        ]
        if group is None and having is None and not any(has_aggregate(i) for i in items):
            return
        known = {k.name.lower() for k in group.expressions} if group is not None else set()
        for item in items:
            for node in item.walk(prune=lambda n: isinstance(n, exp.AggFunc)):
                named = isinstance(node, exp.Column) and (
                    node.name.lower() in known or (item is order and node.name.lower() in made)
                )
                if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and not named):
                    raise Unequal(f"{node.name or '*'} is not grouped")

    def _sorted(self, key: exp.Expression, made: dict[str, str | None]) -> None:
        value = key.this if isinstance(key, exp.Ordered) else key
        if isinstance(value, exp.Column) and len(value.parts) == 1 and value.name.lower() in made:
            self._ordered(made[value.name.lower()])
        elif isinstance(value, exp.Literal):
            raise Unequal("ORDER BY has a number")
        else:
            self._ordered(self._type(value))

    def _ordered(self, kind: str | None) -> None:
        if kind not in _ORDERED:
            raise Unequal(f"values of type {kind} are compared")

    def _condition(self, node: exp.Expression) -> None:
        if self._type(node) != "boolean":
            raise Unequal("a condition is not a boolean")

    def _column(self, node: exp.Column) -> str:
        own = len(node.parts) == 1 or (len(node.parts) == 2 and node.table.lower() == self.alias)
        found = self.types.get(node.name.lower()) if own else None
        if found is None:
            raise Unequal(f"{node.name} is not a column")
        _check_held(found)
        return found

    def _type(self, node: exp.Expr) -> str:
        """Spark's type of an expression that is on the list; Unequal if it is not."""
        node = bare(node)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Boolean):
            return "boolean"
        if isinstance(node, exp.Literal):
            return self._literal(node)
        if isinstance(node, exp.Neg):
            return self._number(self._type(node.this))
        if isinstance(node, _ARITHMETIC):
            return self._arithmetic(self._type(node.this), self._type(node.expression))
        if isinstance(node, (exp.And, exp.Or)):
            self._condition(node.this)
            self._condition(node.expression)
            return "boolean"
        if isinstance(node, exp.Not):
            self._condition(node.this)
            return "boolean"
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and RAW not in node.expression.meta:
            self._type(node.this)
            return "boolean"
        if isinstance(node, _COMPARISONS):
            return self._compared([node.this, node.expression])
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            return self._compared([node.this, node.args["low"], node.args["high"]])
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            return self._compared([node.this, *node.expressions])
        if isinstance(node, (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)):
            return self._aggregate(node)
        name = name_of(node)
        raise Unequal(f"{name}() is not on the list" if name else f"{node.key.upper()} is not on the list")

    def _literal(self, node: exp.Literal) -> str:
        text = node.name
        if node.is_string:
            if "\\" in str(node.meta.get("raw", "")):
                raise Unequal("a string has an escape")
            return "string"
        if text.isdigit() and int(text) < 1 << 63:
            return "int" if int(text) < 1 << 31 else "bigint"
        if text.replace(".", "", 1).isdigit() and len(text) <= 16:
            return "decimal"
        raise Unequal(f"the number {text} is not plain")

    def _number(self, kind: str) -> str:
        if kind not in ("int", "bigint", "double"):
            raise Unequal(f"arithmetic with {kind}")
        return kind

    def _arithmetic(self, left: str, right: str) -> str:
        kinds = {self._number(left), self._number(right)}
        return "double" if "double" in kinds else "bigint" if "bigint" in kinds else "int"

    def _compared(self, nodes: Iterable[exp.Expr]) -> str:
        kinds = {"number" if k in (*_NUMBERS, "decimal") else k for k in map(self._type, nodes)}
        if len(kinds) != 1 or not kinds <= {"number", "string", "boolean", "date", "timestamp"}:
            raise Unequal(f"values of types {' and '.join(sorted(kinds))} are compared")
        return "boolean"

    def _aggregate(self, node: exp.Expression) -> str:
        of = node.this
        if node.expressions or (of is not None and isinstance(of, exp.Distinct)):
            raise Unequal(f"{name_of(node)}() has DISTINCT or several arguments")
        if isinstance(node, exp.Count):
            if not isinstance(of, (exp.Star, exp.Column, exp.Literal)):
                raise Unequal("count() is of an expression")
            return "bigint"
        if not isinstance(of, exp.Column):
            raise Unequal(f"{name_of(node)}() is of an expression")
        kind = self._column(of)
        if isinstance(node, (exp.Min, exp.Max)):
            self._ordered(kind)
            return kind
        # Of BIGINT, Spark adds up doubles, DuckDB whole numbers.
        if kind not in _NUMBERS or (isinstance(node, exp.Avg) and kind == "bigint"):
            raise Unequal(f"{name_of(node)}() of {kind}")
        return "bigint" if isinstance(node, exp.Sum) and kind in _WHOLE else "double"

    def _as_written(self, item: exp.Expression) -> exp.Expression:
        """A column has the name of the query, in DuckDB that of the table."""
        if not isinstance(item, exp.Column) or isinstance(item.this, exp.Star) or item.name in self.names:
            return item
        made = exp.alias_(item, item.name, quoted=True)
        assert isinstance(made, exp.Expression)
        return made

    def _doubled(self, node: exp.Expression) -> None:
        """DuckDB compares a FLOAT and a literal or a whole number as FLOAT, Spark as DOUBLE."""
        for side in [*node.iter_expressions()]:
            if self._type(side) == "float":
                side.replace(exp.cast(side.copy(), exp.DataType.build("DOUBLE")))

    def _explicit(self, node: exp.Expression) -> exp.Expression:
        if isinstance(node, (*_COMPARISONS, exp.Between, exp.In)):
            self._doubled(node)
        if isinstance(node, exp.Sum) and self._column(node.this) in _WHOLE:
            return exp.cast(node, exp.DataType.build("BIGINT"))
        if isinstance(node, exp.Ordered):
            desc = bool(node.args.get("desc"))
            first = node.args.get("nulls_first")
            return exp.Ordered(this=node.this, desc=desc, nulls_first=(not desc) if first is None else bool(first))
        return node
