"""Random aggregate and analytic calls whose result does not depend on the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.generated.expressions import COMPARED, PLAIN_KINDS, Expressions, Field, Fields


@dataclass(frozen=True)
class Call:
    """An expression with an aggregate or OVER. `duck`: DuckDB means the same by it; `spark`: Spark has it."""

    text: str
    kind: str
    duck: bool = True
    small: bool = False
    spark: bool = True

    @property
    def field(self) -> Field:
        return Field(self.text, self.kind, self.small)


class Aggregates(Expressions):
    """Adds calls of aggregates and analytic functions to expressions."""

    def aggregate(self, fields: Fields) -> Call:
        call = self._aggregate(fields)
        if (
            self.chance.random() < 0.12
            and "WITHIN" not in call.text
            and call.text.endswith(")")
            and "sort" not in call.text
            and "coalesce" not in call.text
            and "estimate" not in call.text
        ):
            return Call(f"{call.text} FILTER (WHERE {self.condition(fields, 1)})", call.kind, call.duck)
        return call

    def _argument(self, fields: Fields, kinds: tuple[str, ...]) -> tuple[str, str]:
        have = [f.kind for f in fields if f.kind in kinds]
        kind = self.chance.choice(have) if have else kinds[0]
        return self.of(fields, kind, self.chance.choice([0, 0, 1, 2])), kind

    def _aggregate(self, fields: Fields) -> Call:
        c = self.chance
        number, kind = self._argument(fields, ("int", "dec", "dbl"))
        anything, sort = self._argument(fields, COMPARED)
        distinct = "DISTINCT " if c.random() < 0.15 else ""
        if c.random() < 0.08 and all(f.kind in PLAIN_KINDS for f in fields) and fields:
            return self._listed(fields)
        if c.random() < 0.06:
            return self._recomputed(fields)
        match c.randrange(22):
            case 0 | 1:
                return Call("count(*)", "int")
            case 2:
                return Call(f"count({distinct}{anything})", "int")
            case 3:
                return Call(f"count(DISTINCT {anything})", "int")
            case 4 | 5 | 6:
                return Call(f"sum({distinct}{number})", kind)
            case 7:
                return Call(f"avg({distinct}{number})", "real", duck=kind != "dec")
            case 8 | 9 | 10:
                return Call(f"{c.choice(['min', 'max'])}({anything})", sort)
            case 11:
                return Call(f"{c.choice(['bool_and', 'bool_or'])}({self.condition(fields, 1)})", "bool")
            case 12:
                return Call(f"count_if({self.condition(fields, 1)})", "int", duck=False)
            case 13:
                name = c.choice(["stddev", "stddev_pop", "variance", "var_pop", "var_samp"])
                return Call(f"{name}({number})", "real", duck=kind != "dec")
            case 14:
                second, _ = self._argument(fields, ("dbl", "int"))
                number, _ = self._argument(fields, ("dbl", "int"))
                name = c.choice(["covar_pop", "covar_samp", "corr"])
                return Call(f"{name}({number}, {second})", "real", duck=False)
            case 15:
                name = c.choice(
                    ["median({})", "percentile({}, 0.25)", "percentile_cont(0.75) WITHIN GROUP (ORDER BY {})"]
                )
                return Call(name.format(number), "real", duck=kind != "dec" and not name.startswith("percentile("))
            case 16:
                return Call(f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {number})", "real", duck=False)
            case 17:
                text = self.of(fields, "str", 1)
                return Call(f"string_agg({text}, ',') WITHIN GROUP (ORDER BY {text})", "str", duck=False)
            case 18:
                name = c.choice(["array_agg", "collect_set"])
                return Call(f"sort_array({name}({anything}))", "arr", duck=False)
            case 19:
                whole = f"CAST({self.of(fields, 'int', 1)} AS BIGINT)"
                return Call(f"{c.choice(['bit_and', 'bit_or', 'bit_xor'])}({whole})", "int", duck=False)
            case 20:
                return Call(f"approx_count_distinct({anything})", "int", duck=False)
            case _:
                every = [f.text for f in fields if f.kind in COMPARED]
                if len(every) < len(fields) or not every:
                    return Call(f"max({anything})", sort)
                c.shuffle(every)
                return Call(
                    f"{c.choice(['min_by', 'max_by'])}({anything}, struct({', '.join(every)}))", sort, duck=False
                )

    def _listed(self, fields: Fields) -> Call:
        """Values in an order that names every column, so that rows that tie are equal."""
        text, _ = self._argument(fields, COMPARED)
        order = self.total_order(fields)
        if self.chance.random() < 0.5:
            return Call(f"coalesce(array_agg({text} ORDER BY {order}), array())", "arr", spark=False)
        text = self.of(fields, "str", 1)
        return Call(f"string_agg({text}, ',') WITHIN GROUP (ORDER BY {order})", "str", duck=False)

    def _recomputed(self, fields: Fields) -> Call:
        """Aggregates without an incremental form, of whole numbers: those of others depend on the order of additions."""
        c = self.chance
        a, b = self.of(fields, "int", 1), self.of(fields, "int", 1)
        anything, kind = self._argument(fields, COMPARED)
        match c.randrange(6):
            case 0:
                return Call(f"{c.choice(['skewness', 'kurtosis'])}({a})", "real", duck=False)
            case 1:
                return Call(f"{c.choice(['regr_slope', 'regr_r2', 'regr_sxx'])}({a}, {b})", "real", duck=False)
            case 2:
                return Call(f"regr_count({a}, {b})", "int", duck=False)
            case 3:
                return Call(f"mode({anything}, true)", kind, duck=False)
            case 4:
                return Call(f"hll_sketch_estimate(hll_sketch_agg({self.of(fields, 'str', 1)}))", "int", duck=False)
            case _:
                return Call(f"max_by({anything}, {anything}, 2)", "arr", duck=False)

    # OVER

    def analytic(self, fields: Fields, *, alike: bool = False) -> Call:
        """A call with OVER. Where the answer depends on the order of rows, the order names every column; not so, if `alike`."""
        c = self.chance
        plain = [f for f in fields if f.kind in COMPARED]
        partition = [f.text for f in c.sample(plain, min(len(plain), c.choice([0, 1, 1, 2])))]
        if partition and c.random() < 0.2:
            partition[0] = self.of(plain, "int", 1)
        by = f"PARTITION BY {', '.join(partition)} " if partition else ""
        total = all(f.kind in COMPARED or f.kind == "bool" for f in fields)
        if total and not alike and c.random() < 0.5:
            return self._ordered(fields, by)
        return self._peers(plain, by)

    def total_order(self, fields: Fields) -> str:
        """Every column, in some order and direction; rows that are still equal are the same row twice."""
        chosen = list(fields)
        self.chance.shuffle(chosen)
        return ", ".join(self.direction(f.text) for f in chosen)

    def direction(self, text: str) -> str:
        return text + self.chance.choice(["", "", " DESC", " NULLS LAST", " DESC NULLS FIRST", " ASC"])

    def _ordered(self, fields: Fields, by: str) -> Call:
        c = self.chance
        order = f"{by}ORDER BY {self.total_order(fields)}"
        anything, kind = self._argument(fields, COMPARED)
        number, number_kind = self._argument(fields, ("int", "dec", "dbl"))
        ignore = c.choice(["", "", " IGNORE NULLS"])
        match c.randrange(8):
            case 0 | 1:
                return Call(f"row_number() OVER ({order})", "int")
            case 2:
                return Call(f"ntile({c.randint(2, 4)}) OVER ({order})", "int")
            case 3 | 4:
                rest = c.choice(["", f", {c.randint(1, 2)}"])
                return Call(f"{c.choice(['lag', 'lead'])}({anything}{rest}){ignore} OVER ({order})", kind)
            case 5:
                frame = c.choice(["", " " + self._rows()])
                return Call(
                    f"{c.choice(['first_value', 'last_value'])}({anything}){ignore} OVER ({order}{frame})", kind
                )
            case 6:
                return Call(f"nth_value({anything}, {c.randint(1, 3)}) OVER ({order})", kind)
            case _:
                name = c.choice(["sum", "count", "min", "max"])
                made = "int" if name == "count" else number_kind
                return Call(f"{name}({number}) OVER ({order} {self._rows()})", made)

    def _rows(self) -> str:
        c = self.chance
        start = c.choice(["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW"])
        end = c.choice(["CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING"])
        if c.random() < 0.1:
            start, end = "3 PRECEDING", "1 PRECEDING"
        return f"ROWS BETWEEN {start} AND {end}"

    def _groups(self, number: str, kind: str, order: str) -> Call:
        """A frame that Spark does not have: rows of equal order count as one, or are left out."""
        c = self.chance
        start = c.choice(["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW"])
        end = c.choice(["CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING"])
        without = c.choice(["", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"])
        unit = "GROUPS" if not without or c.random() < 0.6 else "RANGE"
        if unit == "RANGE":
            start, end = "UNBOUNDED PRECEDING", c.choice(["CURRENT ROW", "UNBOUNDED FOLLOWING"])
        call = c.choice([(f"sum({number})", kind), ("count(*)", "int"), (f"max({number})", kind)])
        return Call(f"{call[0]} OVER ({order} {unit} BETWEEN {start} AND {end}{without})", call[1], spark=False)

    def _peers(self, fields: Fields, by: str) -> Call:
        """Functions that treat rows of equal order alike."""
        c = self.chance
        number, kind = self._argument(fields, ("int", "dec", "dbl"))
        anything, sort = self._argument(fields, COMPARED)
        keys = [f.text for f in c.sample(list(fields), min(len(fields), c.randint(1, 2)))]
        order = f"{by}ORDER BY {', '.join(map(self.direction, keys or ['1']))}"
        if keys and c.random() < 0.15:
            return self._groups(number, kind, order)
        match c.randrange(7):
            case 0 | 1:
                return Call(f"{c.choice(['rank', 'dense_rank'])}() OVER ({order})", "int")
            case 2:
                return Call(f"{c.choice(['percent_rank', 'cume_dist'])}() OVER ({order})", "real")
            case 3:
                over = c.choice([by, order])
                call = c.choice([(f"sum({number})", kind), ("count(*)", "int"), (f"min({anything})", sort)])
                return Call(f"{call[0]} OVER ({over})", call[1])
            case 4:
                return Call(f"max({anything}) OVER ({by})", sort)
            case 5:
                key = self.pick(fields, "int")
                if key is None:
                    return Call(f"count({anything}) OVER ({by})", "int")
                frame = f"RANGE BETWEEN {c.choice([0, 1, 2])} PRECEDING AND {c.choice(['CURRENT ROW', '1 FOLLOWING'])}"
                text = f"sum({number}) OVER ({by}ORDER BY {key.text}{c.choice(['', ' DESC'])} {frame})"
                return Call(text, kind)
            case _:
                return Call(f"avg({number}) OVER ({order})", "real", duck=kind != "dec")
