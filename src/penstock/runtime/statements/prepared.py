"""Parsed statements, kept by their text: drivers send the same few texts again and again."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.catalog.objects import ObjectInfo
from penstock.catalog.store import Catalog
from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.runtime.statements.casts import Constant
from penstock.runtime.statements.constants import bound_constant
from penstock.runtime.statements.points import PointSelect
from penstock.sql import statements as st
from penstock.sql.bind.batch import BatchQuery
from penstock.sql.params import Place, template
from penstock.sql.script import parse_script

_MOST = 1_000
_LONGEST = 10_000
"""In characters. Larger statements gain little, and would take much memory."""

_KEPT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Bindings:
    """What a run of a SELECT found out. It is valid as long as the catalogue has the same objects under the same names."""

    objects: tuple[ObjectInfo, ...]
    batch: BatchQuery
    point: PointSelect | None

    def hold(self, catalog: Catalog) -> bool:
        return bool(self.objects) and all(catalog.get(i.name) is i for i in self.objects)


@dataclass
class Prepared:
    """One statement. `places` are its parameters, whose placeholders are named after their position: p0, p1 …

    `bindings` are replaced as a whole, so that threads never see parts of two.
    """

    statement: st.Statement
    places: tuple[Place, ...]
    settings: Settings
    bindings: Bindings | None = None

    def bind(self, params: Sequence[object] | Mapping[str, object] | None) -> dict[str, Constant] | None:
        """The parameters by placeholder; None if they do not match, or Spark has to read one."""
        if params is None:
            return {} if not self.places else None
        named = isinstance(params, Mapping)
        if not named and (not isinstance(params, (list, tuple)) or len(params) != len(self.places)):
            return None
        bound: dict[str, Constant] = {}
        for i, place in enumerate(self.places):
            if named != isinstance(place, str):
                return None
            if isinstance(params, Mapping):
                value = bound_constant(params[str(place)]) if place in params else None
            else:
                value = bound_constant(params[i])
            if value is None:
                return None
            bound[f"p{i}"] = value
        if named and len(set(self.places)) != len(params):
            return None
        return bound


class PreparedStatements:
    """The last statements that were run, of one database. Thread-safe.

    Only a parsed text is kept, which depends on the settings; `Bindings` are checked against the catalogue whenever they are used.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Prepared | None] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, sql: str, settings: Settings) -> Prepared | None:
        """The statement of a text, parsed now or before; None if it is not one that is worth keeping, or has an error."""
        if not isinstance(sql, str) or len(sql) > _LONGEST or not _KEPT.match(sql):
            return None
        with self._lock:
            if sql in self._kept:
                found = self._kept[sql]
                if found is None or found.settings is settings:
                    self._kept.move_to_end(sql)
                    return found
        made = _prepared(sql, settings)
        with self._lock:
            self._kept[sql] = made
            self._kept.move_to_end(sql)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return made


def _prepared(sql: str, settings: Settings) -> Prepared | None:
    """Any error is left to the path that parses the text with its parameters, and knows their positions."""
    try:
        text, places = template(sql)
        statements = parse_script(text, connectors="check", programs=settings.security.allow_programs)
    except PenstockError:
        return None
    if len(statements) != 1:
        return None
    statement = statements[0]
    if isinstance(statement, st.Select):
        trees: Sequence[exp.Expr | None] = [statement.query.ast]
        if statement.query.options:
            return None
    elif isinstance(statement, st.Insert) and statement.values is not None:
        trees = [e for row in statement.values for e in row]
    elif isinstance(statement, st.Update):
        trees = [statement.where, *(e for _, e in statement.assignments)]
    elif isinstance(statement, st.Delete):
        trees = [statement.where]
    else:
        return None
    holes = [h.name for tree in trees if tree is not None for h in tree.find_all(exp.Placeholder)]
    if sorted(holes) != sorted(f"p{i}" for i in range(len(places))):
        return None
    return Prepared(statement, places, settings)
