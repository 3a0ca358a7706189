"""Random expressions in Spark SQL, by kind of value.

Expressions without a unique result are omitted on purpose: overflow, division by zero, floating-point results that depend on the order
of additions (their kind is `real`: such a column may be selected, but not compared, grouped or ordered by).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

PLAIN_KINDS = ("int", "str", "dec", "dbl", "date", "ts", "bool")
COMPARED = ("int", "str", "dec", "dbl", "date", "ts")


@dataclass(frozen=True)
class Field:
    """A column that an expression may use: its text, its kind, and whether its numbers are small enough to multiply."""

    text: str
    kind: str
    small: bool = True


Fields = Sequence[Field]


class Expressions:
    """Makes expressions over some fields."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def pick(self, fields: Fields, kind: str) -> Field | None:
        found = [f for f in fields if f.kind == kind]
        return self.chance.choice(found) if found else None

    def any(self, fields: Fields, depth: int = 2) -> tuple[str, str]:
        """An expression of a kind that the fields have, mostly: (text, kind)."""
        kinds = [f.kind for f in fields if f.kind in PLAIN_KINDS]
        kind = self.chance.choice(kinds) if kinds and self.chance.random() < 0.9 else self.chance.choice(["int", "str"])
        return self.of(fields, kind, depth), kind

    def of(self, fields: Fields, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.chance.random() < 0.35:
            return self.leaf(fields, kind)
        made: str = getattr(self, "_" + kind)(fields, depth - 1)
        return made

    def leaf(self, fields: Fields, kind: str) -> str:
        field = self.pick(fields, kind)
        if field is not None and self.chance.random() < 0.85:
            return field.text
        return self.literal(kind)

    def literal(self, kind: str) -> str:
        c = self.chance
        match kind:
            case "int":
                return c.choice(["0", "1", "2", "3", "(-1)", "7"])
            case "str":
                return c.choice(["'a'", "'b'", "'x'", "''"])
            case "dec":
                return c.choice(["1.50", "0.25", "CAST(2 AS DECIMAL(4, 1))"])
            case "dbl":
                return c.choice(["CAST(0.5 AS DOUBLE)", "CAST(2 AS DOUBLE)"])
            case "date":
                return c.choice(["DATE '2026-01-02'", "DATE '2026-02-01'"])
            case "ts":
                return c.choice(["TIMESTAMP '2026-01-01 00:00:01'", "TIMESTAMP '2026-01-01 01:00:00'"])
            case _:
                return c.choice(["true", "false"])

    # One function for each kind.

    def _general(self, fields: Fields, kind: str, depth: int) -> str:
        """CASE, coalesce and their like, which every kind has."""
        a, b = self.of(fields, kind, depth), self.of(fields, kind, depth)
        match self.chance.randrange(5):
            case 0:
                return f"CASE WHEN {self.condition(fields, depth)} THEN {a} ELSE {b} END"
            case 1:
                return f"coalesce({a}, {b})"
            case 2:
                return f"nullif({a}, {self.leaf(fields, kind)})"
            case 3:
                return f"if({self.condition(fields, depth)}, {a}, {b})"
            case _:
                return f"CASE WHEN {self.condition(fields, depth)} THEN {a} END"

    def _small(self, fields: Fields) -> Fields:
        return [f for f in fields if f.small]

    def _int(self, fields: Fields, depth: int) -> str:
        c = self.chance
        a = self.of(fields, "int", depth)
        match c.randrange(11):
            case 0 | 1:
                return f"({a} + {self.of(fields, 'int', depth)})"
            case 2:
                return f"({a} - {self.of(fields, 'int', depth)})"
            case 3:
                return f"({a} * {c.choice([2, 3, -1])})"
            case 4:
                small = self._small(fields)
                return f"({self.leaf(small, 'int')} * {self.leaf(small, 'int')})"
            case 5:
                return f"({a} % {c.choice([2, 3, 5])})"
            case 6:
                return f"abs({a})"
            case 7:
                return f"length({self.of(fields, 'str', depth)})"
            case 8:
                return f"{c.choice(['greatest', 'least'])}({a}, {self.of(fields, 'int', depth)})"
            case 9 if self.pick(fields, "date") is not None:
                date = self.of(fields, "date", depth)
                return c.choice([f"day({date})", f"month({date})", f"datediff({date}, DATE '2026-01-01')"])
            case 9 if self.pick(fields, "ts") is not None:
                return f"hour({self.of(fields, 'ts', depth)})"
            case _:
                return self._general(fields, "int", depth)

    def _str(self, fields: Fields, depth: int) -> str:
        a = self.of(fields, "str", depth)
        match self.chance.randrange(8):
            case 0 | 1:
                return f"({a} || {self.leaf(fields, 'str')})"
            case 2:
                return f"upper({a})"
            case 3:
                return f"lower({a})"
            case 4:
                return f"substr({a}, 1, {self.chance.randint(1, 2)})"
            case 5:
                return f"CAST({self.of(fields, 'int', depth)} AS STRING)"
            case 6:
                return f"replace({a}, 'a', 'xy')"
            case _:
                return self._general(fields, "str", depth)

    def _dec(self, fields: Fields, depth: int) -> str:
        a = self.of(fields, "dec", depth)
        match self.chance.randrange(7):
            case 0 | 1:
                return f"({a} {self.chance.choice('+-')} {self.of(fields, 'dec', depth)})"
            case 2:
                return f"CAST({self.of(fields, 'int', depth)} AS DECIMAL(14, 2))"
            case 3:
                return f"round({a}, 1)"
            case 4:
                return f"abs({a})"
            case 5:
                return f"CAST({a} * 2 AS DECIMAL(20, 3))"
            case _:
                return self._general(fields, "dec", depth)

    def _dbl(self, fields: Fields, depth: int) -> str:
        a = self.of(fields, "dbl", depth)
        match self.chance.randrange(6):
            case 0 | 1:
                return f"({a} {self.chance.choice('+-')} {self.of(fields, 'dbl', depth)})"
            case 2:
                return f"CAST({self.of(fields, 'int', depth)} AS DOUBLE)"
            case 3:
                return f"({self.of(fields, 'int', depth)} / {self.chance.choice([2, 4])})"
            case 4:
                return f"abs({a})"
            case _:
                return self._general(fields, "dbl", depth)

    def _date(self, fields: Fields, depth: int) -> str:
        a = self.of(fields, "date", depth)
        match self.chance.randrange(4):
            case 0:
                return f"date_add({a}, {self.chance.choice([1, 30])})"
            case 1:
                return f"last_day({a})"
            case 2 if self.pick(fields, "ts") is not None:
                return f"CAST({self.of(fields, 'ts', depth)} AS DATE)"
            case _:
                return self._general(fields, "date", depth)

    def _ts(self, fields: Fields, depth: int) -> str:
        a = self.of(fields, "ts", depth)
        match self.chance.randrange(3):
            case 0:
                return f"({a} + INTERVAL '{self.chance.choice([1, 90])}' {self.chance.choice(['SECOND', 'MINUTE'])})"
            case 1:
                return f"date_trunc('HOUR', {a})"
            case _:
                return self._general(fields, "ts", depth)

    def _bool(self, fields: Fields, depth: int) -> str:
        return f"({self.condition(fields, depth)})"

    # Conditions

    def condition(self, fields: Fields, depth: int = 2) -> str:
        c = self.chance
        if depth > 0 and c.random() < 0.3:
            a, b = self.condition(fields, depth - 1), self.condition(fields, depth - 1)
            return c.choice([f"({a} AND {b})", f"({a} OR {b})", f"(NOT ({a}))"])
        kinds = [f.kind for f in fields if f.kind in COMPARED]
        kind = c.choice(kinds) if kinds else "int"
        a = self.of(fields, kind, depth - 1)
        match c.randrange(10):
            case 0:
                return f"{a} IS {c.choice(['', 'NOT '])}NULL"
            case 1:
                listed = ", ".join([self.literal(kind) for _ in range(c.randint(1, 3))])
                return f"{a} {c.choice(['', 'NOT '])}IN ({listed})"
            case 2:
                return f"{a} BETWEEN {self.literal(kind)} AND {self.leaf(fields, kind)}"
            case 3:
                return f"{a} IS {c.choice(['', 'NOT '])}DISTINCT FROM {self.leaf(fields, kind)}"
            case 4 if self.pick(fields, "bool") is not None:
                return self.leaf(fields, "bool")
            case 4 if kind == "str":
                return f"{a} LIKE '{c.choice(['a%', '%b', '_'])}'"
            case _:
                return f"{a} {c.choice(['=', '<>', '<', '<=', '>', '>=', '>', '<'])} {self.leaf(fields, kind)}"
