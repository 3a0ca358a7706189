"""Forbidden Spark functions and clauses: they run programs or Java methods, or read files or the process's environment."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from penstock.errors import PenstockError, Position, fail
from penstock.sql.tokens import Script
from penstock.sql.trees import bare

_JAVA = "calls any Java method"
_FILES = "reads a file or URL named by its arguments"
_ACCOUNT = "reveals the account of the process"

FORBIDDEN: Mapping[str, str] = {
    "reflect": _JAVA,
    "java_method": _JAVA,
    "try_reflect": _JAVA,
    "from_protobuf": _FILES,
    "to_protobuf": _FILES,
    "from_avro": _FILES,
    "to_avro": _FILES,
    "schema_of_avro": _FILES,
    "python_worker_logs": "reads the logs of the process",
    "current_user": _ACCOUNT,
    "session_user": _ACCOUNT,
    "user": _ACCOUNT,
}
"""Functions by lower-case name, with the reason."""

_XML = frozenset({"from_xml", "schema_of_xml", "to_xml"})
_XML_FILES = frozenset({"rowvalidationxsdpath"})
_STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Into)
_HINT = "The setting security.allow_programs allows it; pass it to penstock.open(config=…)."


def check_reach(script: Script, tree: exp.Expression, start: Position) -> None:
    """Raises PSK-0012 for access outside the database, unless the script allows `programs`, and PSK-1012 for constructs that hide names.

    `start` is the position of an error whose node has none.
    """

    def refused(code: str, detail: str, node: exp.Expr, hint: str | None = None) -> PenstockError:
        return fail(code, detail, hint=hint, position=script.place(node) or start, sql=script.shown)

    for node in tree.walk():
        if isinstance(node, _STATEMENTS):
            raise refused("PSK-1001", "a query cannot contain another kind of statement", node)
        if isinstance(node, (exp.Parameter, exp.SessionParameter)):
            raise refused("PSK-1012", "a variable is not allowed here", node, "Use a bound parameter: ? or :name.")
        if isinstance(node, exp.Func) and "identifier" in called(node):
            raise refused("PSK-1012", "IDENTIFIER(…) is not supported", node, "Write the name itself.")
        reason = _reach(node) if not script.reading.programs else None
        if reason is not None:
            raise refused("PSK-0012", reason, node, _HINT)


def _reach(node: exp.Expr) -> str | None:
    """A sentence that says what a node accesses outside the database; None if nothing."""
    if isinstance(node, exp.QueryTransform):
        return "TRANSFORM … USING runs a program"
    if not isinstance(node, exp.Func):
        return None
    for name in called(node):
        if name in FORBIDDEN:
            return f"{name} {FORBIDDEN[name]}"
        if name in _XML:
            problem = next((p for a in node.expressions[1:] if (p := _xml_options(a)) is not None), None)
            return None if problem is None else f"{name} {problem}"
    return None


def called(node: exp.Func) -> tuple[str, ...]:
    """The lower-case names that Spark may use for a call. Qualified or quoted, it is the same function."""
    if isinstance(node, exp.Anonymous):
        return (node.name.lower(),)
    return tuple(name.lower() for name in type(node).sql_names())


def _xml_options(argument: exp.Expression) -> str | None:
    """The options of XML functions can name a schema file, so they must be a map of literals."""
    argument = bare(argument)
    called_name = argument.name.lower() if isinstance(argument, exp.Anonymous) else None
    schema = called_name == "schema_of_xml"
    if schema or isinstance(argument, exp.Literal):
        return None
    parts = [p for p in argument.find_all(exp.Literal, exp.Column, exp.Func) if p is not argument]
    if called_name != "map" or any(not isinstance(p, exp.Literal) for p in parts):
        return "accepts its options only as map('name', 'value', …)"
    if any(p.name.lower() in _XML_FILES for p in parts if isinstance(p, exp.Literal)):
        return "would read the file named by rowValidationXSDPath"
    return None
