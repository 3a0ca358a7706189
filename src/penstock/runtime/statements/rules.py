"""Row rules: CREATE POLICY, and what a session with variables may read.

The session of `Database` itself is the owner's, and sees everything. A session with variables (`Database.session`) can only read, and sees of an
object with rules the rows for which one of them holds. A rule is a function of the row and of the session's variables; so a row that an update makes
visible or invisible is inserted or retracted. Rows of a view that was made from ruled rows cannot be told apart, so it is refused, unless it
has rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.policies import policies, with_policy
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.dialect import DIALECT
from penstock.plan.repeats import canonical
from penstock.runtime.engine import Engine
from penstock.runtime.statements.conditions import condition, selected
from penstock.runtime.statements.faithful import check_expressions
from penstock.runtime.statements.inspect import find
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_condition

Variables = Mapping[str, object]

_VARIABLE = "current_setting"
_LINEAR = (p.Scan, p.Filter, p.Project)


def create_policy(engine: Engine, s: st.CreatePolicy) -> None:
    """The rule applies to everything that begins from now on; open subscriptions of restricted sessions to the object are ended."""
    with engine.ddl:
        info = find(engine, s.target)
        if info.kind in (Kind.SINK, Kind.FUNCTION):
            raise fail("PSK-1008", f"{info.name} is a {info.kind.value}; nothing reads it.")
        if info.kind is Kind.NAMED_QUERY:
            raise fail(
                "PSK-1008",
                f"{info.name} is a view that is not materialized; it has no rows of its own.",
                hint="CREATE POLICY on the objects that it reads; their rules apply to it.",
            )
        if s.name.lower() in policies(info):
            raise fail("PSK-1003", f"{info.name} already has a policy {s.name}.")
        check_expressions(engine, s, s.using)
        text = s.using.sql(dialect=DIALECT)
        _check(engine, info, text)
        engine.catalog.replace(with_policy(info, s.name.lower(), text))
        _end_restricted(engine, info)


def drop_policy(engine: Engine, s: st.DropPolicy) -> None:
    with engine.ddl:
        info = find(engine, s.target)
        if s.name.lower() not in policies(info):
            if s.if_exists:
                return
            raise fail("PSK-1002", f"{info.name} has no policy {s.name}.")
        engine.catalog.replace(with_policy(info, s.name.lower(), None))
        _end_restricted(engine, info)


def show_policies(engine: Engine) -> pa.Table:
    rows = [
        {"name": name, "object": o.name, "using": text}
        for o in engine.catalog.objects()
        for name, text in policies(o).items()
    ]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([("name", pa.string()), ("object", pa.string()), ("using", pa.string())])
    )


def _end_restricted(engine: Engine, info: ObjectInfo) -> None:
    """What restricted sessions follow was made with the old rules."""
    affected = {o.id for o in engine.catalog.objects() if info.id in {u.id for u in engine.jobs.upstream([o])}}
    for s in engine.hub.subscriptions():
        if s.reads & affected:
            s.kill()


def _check(engine: Engine, info: ObjectInfo, text: str) -> None:
    """Refuses what is not a function of a row: queries, aggregates, the clock, random values."""
    tree = parse_condition(text, programs=engine.settings.security.allow_programs)
    for call in _variables(tree):
        argument = call.expressions[0] if len(call.expressions) == 1 else None
        if not isinstance(argument, exp.Literal) or not argument.is_string:
            raise fail("PSK-1011", f"{_VARIABLE} takes the name of a session variable in quotes.")
    condition_text = _bound(tree, None)
    query = bind(selected(engine, info.name, condition_text), engine.catalog)
    if canonical(query) is None or not all(isinstance(n, _LINEAR) for n in query.root.walk()):
        raise fail("PSK-1012", "A row rule can only use the columns of the row, constants and current_setting('…').")
    condition(engine, info, condition_text)


def _variables(tree: exp.Expression) -> list[exp.Anonymous]:
    return [n for n in tree.find_all(exp.Anonymous) if n.name.lower() == _VARIABLE]


def _bound(tree: exp.Expression, variables: Variables | None) -> str:
    """The condition with the values of variables in it; None: with NULL for each, to look at it only."""

    def change(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Anonymous) or node.name.lower() != _VARIABLE:
            return node
        if variables is None:
            return exp.Null()
        name = node.expressions[0].name
        if name not in variables:
            raise fail(
                "PSK-5019",
                f"A row rule needs the session variable {name}.",
                hint=f"Open the session with it: db.session({name}=…).",
            )
        value: exp.Expression = exp.convert(variables[name])  # type: ignore[assignment]
        return value

    return tree.transform(change).sql(dialect=DIALECT)


def rule(engine: Engine, info: ObjectInfo, variables: Variables) -> str | None:
    """The condition for the rows of an object that a session sees; None if it sees all. Refused where no rule can be enforced."""
    own = policies(info)
    if own:
        programs = engine.settings.security.allow_programs
        parts = [_bound(parse_condition(text, programs=programs), variables) for text in own.values()]
        return " OR ".join(f"({part})" for part in parts)
    ruled = [o for o in engine.jobs.upstream([info]) if policies(o)]
    if ruled:
        raise fail(
            "PSK-5019",
            f"{info.name} is made from {ruled[0].name}, whose row rules cannot be applied to it any more.",
            hint=f"Select from {ruled[0].name}, or CREATE POLICY … ON {info.name}.",
        )
    return None


def keeper(engine: Engine, info: ObjectInfo, variables: Variables | None) -> Callable[[pa.Table], pa.Table] | None:
    """The filter that leaves the rows that a session sees; None if it sees all."""
    text = rule(engine, info, variables) if variables is not None else None
    return None if text is None else condition(engine, info, text)


def ruled_inputs(engine: Engine, query: p.Query, variables: Variables) -> dict[str, ParsedQuery]:
    """By the name of each object with rules that a query reads: the query for the rows of it that the session sees."""
    found: dict[str, ParsedQuery] = {}
    for node in query.root.walk():
        if isinstance(node, p.Scan) and engine.catalog.has_id(node.object_id):
            info = engine.catalog.by_id(node.object_id)
            text = rule(engine, info, variables)
            if text is not None:
                found[info.name] = selected(engine, info.name, text)
    return found
