"""The SQL dialect of plans: parsed for structure, and regenerated unchanged.

sqlglot translates between dialects: it reads a call as its presumed meaning, and writes that meaning. Here Spark defines the meaning, so a call keeps its
name and arguments, and a constant, type or interval keeps its text. `penstock.sql.written` checks the result with Spark's parser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

DIALECT = "penstock"
"""The name of the dialect, for the SQL library."""

RAW = "raw"
"""Metadata key: a node's text in the script."""
SPAN = "span"
"""Metadata key: the start and end offsets of an expression, call or query in the script."""
IS_NOT = "is_not"
"""Metadata key of a flag: the node was written `a IS NOT b` and parsed as `NOT a IS b`."""
CALL_END = "call_end"
"""Metadata key: the offset after the closing parenthesis of a call, before FILTER, OVER and the like."""

_QUOTED = (TokenType.STRING, TokenType.HEX_STRING, TokenType.RAW_STRING)
_READ = frozenset(
    {
        "COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE", "ABS", "ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE",
        "LAG", "LEAD", "NTH_VALUE", "GROUPING", "GROUPING_ID", "EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE", "STACK",
        "UNNEST", "EXISTS",
    }
)  # fmt: skip
"""Functions whose nodes the binder interprets. Their nodes have the arguments of the call in order."""

_UNITS = frozenset(
    {
        "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND",
    }
)  # fmt: skip
_WITH_UNIT = ("TIMESTAMPADD", "TIMESTAMPDIFF", "DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "TIMEDIFF")
_WORDS: dict[str, frozenset[str]] = {
    "EXTRACT": frozenset({"FROM"}),
    "OVERLAY": frozenset({"PLACING", "FROM", "FOR"}),
    "POSITION": frozenset({"IN"}),
    "SUBSTR": frozenset({"FROM", "FOR"}),
    "SUBSTRING": frozenset({"FROM", "FOR"}),
    "TRIM": frozenset({"BOTH", "LEADING", "TRAILING", "FROM"}),
}
"""The keywords between the arguments of some calls."""


class Phrase(exp.Expression, exp.Func):
    """A call with keywords between its arguments, or with a unit as its first: `TRIM(BOTH a FROM b)`, `DATEADD(DAY, 1, d)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}
    is_var_len_args: ClassVar[bool] = True


class Part(exp.Expression, exp.Func):
    """`v:a.b[0]`: the part of a VARIANT at a path, which is kept as written. A function, so that every dialect can print it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True}


class Unsigned(exp.Expression):
    """The right operand of `>>>`, which is parsed as `>>` with this node."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Positive(exp.Expression, exp.Func):
    """`+ a`, which is an operator in Spark. A function, so that every dialect can print it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


def _phrase(name: str) -> Callable[[Any], exp.Expression]:
    return lambda parser: parser.parse_phrase(name)


class Penstock(Spark):
    """Spark SQL whose expressions are regenerated as written."""

    # The binder handles ORDER BY ALL, because a quoted column may have this name.
    SUPPORTS_ORDER_BY_ALL = False

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {name: made for name, made in SparkParser.FUNCTIONS.items() if name in _READ}
        FUNCTION_PARSERS: ClassVar = {
            **{name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")},
            **{name: _phrase(name) for name in _WORDS},
            **{name: _phrase(name) for name in _WITH_UNIT},
        }

        UNARY_PARSERS: ClassVar = {
            **SparkParser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: self.expression(Positive(this=self._parse_unary())),
        }

        # `v:a.b[0]` is a part of a VARIANT.
        COLON_IS_VARIANT_EXTRACT: ClassVar[bool] = True

        # `array(a)[0]` is the element of an array.
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

        def parse_phrase(self, name: str) -> exp.Expression:
            """The arguments of a call, up to its closing parenthesis; a plain call if it has none of the keywords."""
            words = _WORDS.get(name, frozenset())
            parts: list[exp.Expression] = []
            plain = True
            while self._curr and self._curr.token_type != TokenType.R_PAREN:
                token = self._curr
                upper = token.text.upper()
                if token.token_type == TokenType.COMMA:
                    self._advance()
                    parts.append(exp.Var(this=","))
                elif (upper in words and token.token_type != TokenType.STRING) or (
                    not parts and self._next and _is_word(token) and _ends_unit(name, upper, self._next)
                ):
                    plain = False
                    self._advance()
                    parts.append(exp.Var(this=token.text))
                else:
                    found = self._parse_lambda() if not words else self._parse_bitwise()
                    if found is None:
                        self.raise_error("Expected an argument")
                        break
                    parts.append(cast(exp.Expression, found))
            if plain:
                args = [p for p in parts if not isinstance(p, exp.Var)]
                return self.expression(exp.Anonymous(this=name, expressions=args))
            return self.expression(Phrase(this=name, expressions=parts))

        def _parse_colon_as_variant_extract(self, this: exp.Expr | None) -> exp.Expr | None:
            while this is not None and self._is_path():
                self._advance()
                start = self._index
                while self._match(TokenType.L_BRACKET) or self._match(TokenType.DOT) or self._index == start:
                    bracket = self._prev.token_type == TokenType.L_BRACKET
                    self._advance()
                    if bracket and not self._match(TokenType.R_BRACKET):
                        self.raise_error("Expected ]")
                this = self._parse_column_ops(self.expression(Part(this=this, path=exp.Var(this=self._text(start)))))
            return this

        def _is_path(self) -> bool:
            """Whether a colon follows a value and is followed by a name, without a space."""
            if self._curr.token_type != TokenType.COLON or not self._next:
                return False
            return self._prev.end + 1 == self._curr.start and self._curr.end + 1 == self._next.start

        def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
            shift = self._prev.token_type == TokenType.GT and self._prev.end + 1 == self._curr.start
            if shift and self._match(TokenType.GT):
                return self.expression(Unsigned(this=super()._parse_term(parse_mod)))
            return super()._parse_term(parse_mod)

        def _parse_value(self, values: bool = True) -> exp.Tuple | None:
            if self._curr.token_type == TokenType.L_PAREN:
                return super()._parse_value(values)
            # Here a word after a value is the alias of the table.
            value = self._parse_disjunction()
            return self.expression(exp.Tuple(expressions=[value])) if value is not None else None

        # Texts

        def _text(self, start: int) -> str:
            """The text of the tokens from index `start` to the current one."""
            return str(self.sql[self._tokens[start].start : self._prev.end + 1])

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
            start = self._index
            made = super()._parse_type(parse_interval, fallback_to_identifier)
            return self._raw(made, start)

        def _parse_primary(self) -> exp.Expr | None:
            start = self._index
            return self._raw(super()._parse_primary(), start)

        def _parse_atom(self) -> exp.Expr | None:
            start = self._index
            return self._raw(super()._parse_atom(), start)

        def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
            start = self._index
            return self._raw(super()._parse_interval(*args, **kwargs), start)

        def _raw(self, node: exp.Expr | None, start: int) -> exp.Expr | None:
            """Keeps the text of a constant, unless its token was rewritten and is not in the script."""
            if (
                node is not None
                and _is_constant(node)
                and self._index > start
                and self._is_written(self._tokens[start])
            ):
                node.meta[RAW] = self._text(start)
            return node

        def _is_written(self, token: Token) -> bool:
            """Whether the script has this token, at its position."""
            text = self.sql[token.start : token.end + 1]
            if token.token_type in _QUOTED:
                return _is_string(text)
            if token.token_type == TokenType.NUMBER:
                return text.startswith(token.text)
            return text.upper() == token.text.upper()

        def _parse_types(self, *args: Any, **kwargs: Any) -> Any:
            start = self._index
            made = super()._parse_types(*args, **kwargs)
            if isinstance(made, exp.DataType) and self._index > start and self._is_written(self._tokens[start]):
                text = self._text(start)
                made.meta[RAW] = text if any(c in text for c in "<`'") else " ".join(text.upper().split())
            return made

        def _parse_null(self) -> exp.Expr | None:
            unknown = self._curr.token_type == TokenType.UNKNOWN
            made = super()._parse_null()
            if unknown and made is not None:
                # In Spark, `a IS UNKNOWN` is a different tree from `a IS NULL`.
                made.meta[RAW] = "UNKNOWN"
            return made

        def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
            negated = self._curr.token_type == TokenType.NOT
            made = super()._parse_is(this)
            if negated and isinstance(made, exp.Not) and isinstance(made.this, exp.Is):
                made.meta[IS_NOT] = True
            return made

        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            """The elements may be any expressions, including conditions."""
            if with_prefix or self._curr.token_type not in (TokenType.CUBE, TokenType.ROLLUP):
                return super()._parse_cube_or_rollup(with_prefix)
            kind = exp.Cube if self._curr.token_type == TokenType.CUBE else exp.Rollup
            self._advance()
            return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_group_key)))

        def _parse_grouping_set(self) -> exp.Expr | None:
            return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_group_key()

        def _parse_group_key(self) -> exp.Expr | None:
            made = self._parse_disjunction()
            if isinstance(made, exp.Tuple):
                # Several keys, or none, are not an expression.
                made.meta.pop(SPAN, None)
            return made

        def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
            """`UNNEST(a) AS x` also names the column, and `WITH ORDINALITY` alone adds a column `ordinality`."""
            made = super()._parse_unnest(with_alias)
            if made is None:
                return None
            if made.args.get("offset") is True:
                made.set("offset", exp.to_identifier("ordinality"))
            alias = made.args.get("alias")
            if isinstance(alias, exp.TableAlias) and alias.this is not None and not alias.columns:
                alias.set("columns", [alias.this.copy()])
            return made

        # Spans

        def _spanned(self, node: exp.Expr | None, start: int) -> exp.Expr | None:
            if node is not None and self._index > start:
                node.meta[SPAN] = (self._tokens[start].start, self._prev.end + 1)
            return node

        def _parse_disjunction(self) -> exp.Expr | None:
            start = self._index
            return self._spanned(super()._parse_disjunction(), start)

        def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
            start = self._index
            return self._spanned(super()._parse_equality(parse_is), start)

        def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            start = self._index
            return self._spanned(super()._parse_select(*args, **kwargs), start)

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            start = self._index
            made = super()._parse_function_call(*args, **kwargs)
            if isinstance(made, exp.Func) and self._index == start + 1:
                made.meta[RAW] = self._prev.text
            if made is not None and SPAN not in made.meta:
                self._spanned(made, start)
            return made

        def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
            if isinstance(this, exp.Func) and not alias:
                this.meta[CALL_END] = self._prev.end + 1
                if "start" in this.meta:
                    this.meta[SPAN] = (this.meta["start"], self._prev.end + 1)
            return super()._parse_window(this, alias)

    class Generator(SparkGenerator):
        SUPPORTS_WINDOW_EXCLUDE = True
        TRANSFORMS: ClassVar = {
            **SparkGenerator.TRANSFORMS,
            Phrase: lambda self, e: self.phrase_sql(e),
            Part: lambda self, e: f"{self.sql(e, 'this')}:{self.sql(e, 'path')}",
            Unsigned: lambda self, e: self.sql(e, "this"),
            Positive: lambda self, e: f"+{self.sql(e, 'this')}",
            exp.BitwiseLeftShift: lambda self, e: self.binary(e, "<<"),
            exp.BitwiseRightShift: lambda self, e: self.binary(
                e, ">>>" if isinstance(e.expression, Unsigned) else ">>"
            ),
            exp.NullSafeEQ: lambda self, e: self.binary(e, "<=>"),
        }

        def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:
            if key is None and isinstance(expression, exp.Expr):
                meta = expression._meta
                if meta and RAW in meta:
                    return str(meta[RAW])
            return str(super().sql(expression, key, comment))

        def not_sql(self, expression: exp.Not) -> str:
            test = expression.this
            if isinstance(test, exp.Is) and expression.meta.get(IS_NOT):
                return f"{self.sql(test, 'this')} IS NOT {self.sql(test, 'expression')}"
            return str(super().not_sql(expression))

        def phrase_sql(self, expression: Phrase) -> str:
            return f"{expression.this}({' '.join(self.sql(e) for e in expression.expressions)})"


def _is_word(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER)


def _ends_unit(name: str, upper: str, after: Token) -> bool:
    """Whether a word is the unit of DATEADD and the like, or the field of EXTRACT."""
    if name == "EXTRACT":
        return after.token_type == TokenType.FROM
    return name in _WITH_UNIT and upper in _UNITS and after.token_type == TokenType.COMMA


def _is_string(text: str) -> bool:
    return text[:1] in ("'", '"') or (text[:1] in "rRxX" and text[-1:] in ("'", '"'))


def _is_constant(node: exp.Expr) -> bool:
    """Whether a node is a literal of one or more tokens: a number, a string, `DATE '…'`, an interval without columns."""
    if isinstance(node, (exp.Literal, exp.HexString, exp.RawString, exp.National)):
        return True
    if isinstance(node, exp.Interval):
        return node.find(exp.Column, exp.Query, exp.Placeholder, exp.Func) is None
    if isinstance(node, exp.Add):
        return isinstance(node.this, exp.Interval) and _is_constant(node.this) and _is_constant(node.expression)
    if isinstance(node, exp.Concat):
        return all(isinstance(e, exp.Literal) for e in node.expressions)
    # `DATE '…'` is read as a cast.
    return isinstance(node, exp.Cast) and SPAN not in node.meta and isinstance(node.this, exp.Literal)
