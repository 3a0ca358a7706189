"""What SQL cannot call: functions and clauses of Spark that run programs or Java methods, or read files or the process's surroundings."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from penstock.errors import PenstockError, Position, fail
from penstock.sql.tokens import Script
from penstock.sql.trees import bare

_JAVA = "calls any Java method"
_FILES = "reads a file or an address that its arguments name"
_PLACE = "shows where files are"
_ACCOUNT = "shows the account that the process runs under"

FORBIDDEN: Mapping[str, str] = {
    "reflect": _JAVA,
    "java_method": _JAVA,
    "try_reflect": _JAVA,
    "from_protobuf": _FILES,
    "to_protobuf": _FILES,
    "from_avro": _FILES,
    "to_avro": _FILES,
    "schema_of_avro": _FILES,
    "input_file_name": _PLACE,
    "input_file_block_start": _PLACE,
    "input_file_block_length": _PLACE,
    "python_worker_logs": "reads the logs of the process",
    "current_user": _ACCOUNT,
    "session_user": _ACCOUNT,
    "user": _ACCOUNT,
}
"""Functions by their lower-case names, and why."""

_XML = frozenset({"from_xml", "schema_of_xml", "to_xml"})
_XML_FILES = frozenset({"rowvalidationxsdpath"})
_STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Into)
_TIMES = (exp.DataType.Type.TIME, exp.DataType.Type.TIMETZ, exp.DataType.Type.TIME_NS)
_HINT = "The setting security.allow_programs allows it; give it to penstock.open(config=…)."


def check_reach(script: Script, tree: exp.Expression, start: Position) -> None:
    """PSK-0012 for what reaches out of the database, unless the script is read with `programs`; PSK-1012 for what hides names.

    `start` is the place of an error for which the tree has none.
    """

    def refused(code: str, detail: str, node: exp.Expr, hint: str | None = None) -> PenstockError:
        return fail(code, detail, hint=hint, position=script.place(node) or start, sql=script.shown)

    for node in tree.walk():
        if isinstance(node, _STATEMENTS):
            raise refused("PSK-1001", "a query cannot contain another kind of statement", node)
        if isinstance(node, (exp.Parameter, exp.SessionParameter)):
            raise refused("PSK-1012", "a variable is not allowed here", node, "Use a bound parameter: ? or :name.")
        if isinstance(node, exp.DataType) and node.this in _TIMES:
            # The SQL library would write TIMESTAMP.
            raise refused("PSK-1013", "the type TIME is not supported", node, "Use TIMESTAMP or STRING.")
        if isinstance(node, exp.Func) and "identifier" in called(node):
            raise refused("PSK-1012", "IDENTIFIER(…) is not supported", node, "Write the name itself.")
        reason = _reach(node) if not script.reading.programs else None
        if reason is not None:
            raise refused("PSK-0012", reason, node, _HINT)


def _reach(node: exp.Expr) -> str | None:
    """What a node reaches outside the database, as a sentence."""
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
    """The lower-case names under which Spark may know a call; qualified or quoted, it is the same function."""
    if isinstance(node, exp.Anonymous):
        return (node.name.lower(),)
    return tuple(name.lower() for name in type(node).sql_names())


def _xml_options(argument: exp.Expression) -> str | None:
    """The options of XML functions can name a schema file. So they must be there to see: a map of literals."""
    argument = bare(argument)
    schema = isinstance(argument, exp.Anonymous) and argument.name.lower() == "schema_of_xml"
    if schema or isinstance(argument, exp.Literal):
        return None
    parts = [p for p in argument.find_all(exp.Literal, exp.Column, exp.Func) if p is not argument]
    if not isinstance(argument, exp.VarMap) or any(not isinstance(p, (exp.Literal, exp.Array)) for p in parts):
        return "takes its options as map('name', 'value', …) only"
    if any(p.name.lower() in _XML_FILES for p in parts if isinstance(p, exp.Literal)):
        return "would read the file that rowValidationXSDPath names"
    return None
