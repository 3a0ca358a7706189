"""Literals and bound parameters as values with Spark's types, without Spark."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from decimal import Decimal

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.runtime.statements.casts import INTEGERS, MAX_DIGITS, Constant, cast, fits, plain, real

Bound = Mapping[str, Constant]
"""The values of parameters, by the name of their placeholder."""

_WHOLE = re.compile(r"[0-9]{1,38}", re.ASCII)
_FRACTION = re.compile(r"[0-9]*\.[0-9]*", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*", re.ASCII)


def constant(e: exp.Expr, bound: Bound) -> Constant | None:
    """The value of an expression that is a literal, a parameter, or a CAST of one; None if Spark has to evaluate it."""
    match e:
        case exp.Null():
            return Constant("void", None)
        case exp.Boolean():
            return Constant("boolean", bool(e.this))
        case exp.Literal():
            return Constant("string", e.this) if e.is_string else _number(e.this, negative=False)
        case exp.Neg():
            if isinstance(e.this, exp.Literal) and not e.this.is_string:
                return _number(e.this.this, negative=True)
            return _negated(constant(e.this, {})) if isinstance(e.this, exp.Cast) else None
        case exp.Placeholder():
            return bound.get(e.name)
        case exp.Concat():
            # 'a' 'b': adjacent strings are one.
            parts = [p.this for p in e.expressions if isinstance(p, exp.Literal) and p.is_string]
            return Constant("string", "".join(parts)) if len(parts) == len(e.expressions) else None
        case exp.HexString():
            return Constant("binary", bytes.fromhex(e.name)) if _HEX.fullmatch(e.name) else None
        case exp.Cast() if not any(v for k, v in e.args.items() if k not in ("this", "to", "safe")):
            given = constant(e.this, bound)
            return None if given is None else cast(given, e.to.sql(dialect=DIALECT).lower().replace(" ", ""))
        case _:
            return None


def _number(text: str, *, negative: bool) -> Constant | None:
    """Spark reads a sign in front of a number as part of it."""
    if _WHOLE.fullmatch(text):
        value = -int(text) if negative else int(text)
        kind = next((k for k in ("int", "bigint") if fits(value, k)), "decimal")
        return Constant(kind, plain(Decimal(value)) if kind == "decimal" else value)
    if _FRACTION.fullmatch(text) and text != ".":
        number = Decimal(text)
        _, digits, exponent = number.as_tuple()
        if max(len(digits), -int(exponent)) > MAX_DIGITS:
            return None
        return Constant("decimal", plain(-number if negative else number))
    made = real(text)
    return None if made is None else Constant("double", -made if negative else made)


def _negated(given: Constant | None) -> Constant | None:
    if given is None or given.value is None:
        return None
    if given.type in INTEGERS:
        return Constant(given.type, -given.value) if fits(-given.value, given.type) else None
    if given.type == "double":
        return Constant("double", -given.value)
    return Constant("decimal", plain(-given.value)) if given.type == "decimal" else None


def bound_constant(value: object) -> Constant | None:
    """A parameter as the literal that `penstock.sql.params.literal` writes for it; None if Spark has to read that."""
    # Subclasses may format their values in another way.
    kind = type(value)
    if value is None:
        return Constant("void", None)
    if kind is bool:
        return Constant("boolean", value)
    if isinstance(value, int) and kind is int:
        # The sign of a literal with a suffix is an operator: the smallest BIGINT cannot be written.
        if abs(value) >= 1 << 63:
            return None
        return Constant("int" if fits(value, "int") else "bigint", value)
    if isinstance(value, float) and kind is float:
        plain_size = not math.isfinite(value) or value == 0.0 or 1e-300 < abs(value) < 1e300
        return Constant("double", value) if plain_size else None
    if isinstance(value, Decimal) and kind is Decimal:
        return _bound_decimal(value)
    if isinstance(value, str) and kind is str:
        return Constant("string", value) if _is_text(value) else None
    if isinstance(value, dt.datetime) and kind is dt.datetime:
        return _bound_time(value)
    if kind is dt.date:
        return Constant("date", value)
    if kind is bytes:
        return Constant("binary", value)
    return None


def _bound_decimal(value: Decimal) -> Constant | None:
    if not value.is_finite():
        return None
    _, digits, exponent = value.as_tuple()
    if len(digits) + abs(int(exponent)) > MAX_DIGITS:
        return None
    return Constant("decimal", plain(Decimal(f"{value:f}")))


def _bound_time(value: dt.datetime) -> Constant | None:
    if value.tzinfo is None:
        return Constant("timestamp", value.replace(tzinfo=dt.UTC))
    try:
        return Constant("timestamp", value.astimezone(dt.UTC))
    except OverflowError:
        return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
