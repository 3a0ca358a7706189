"""Files as rows: read_files('path', format => 'csv', …), and the options of COPY."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokens import TokenType

from penstock.catalog.objects import Column
from penstock.errors import PenstockError, Position
from penstock.sql.names import nearest
from penstock.sql.tokens import Cursor, Script, is_name

FORMATS = ("csv", "json", "parquet")
READ_FILES = "read_files"
_READING = ("format", "header", "delimiter", "null", "schema")
_WRITING = ("format", "header", "delimiter", "overwrite")
_LOADING = ("format", "header", "delimiter", "null")
_CSV = ("header", "delimiter", "null")
_FLAGS = ("header", "overwrite")

Refuse = Callable[[str, str, str | None], PenstockError]
"""Makes an error from a code, a detail and a hint."""


@dataclass(frozen=True)
class FileOptions:
    """`format` is None if the extension of each file tells it. `null` is the unquoted CSV field that means NULL."""

    format: str | None = None
    header: bool = True
    delimiter: str = ","
    null: str = ""
    overwrite: bool = False


@dataclass(frozen=True)
class FileRead:
    """A call of read_files. Without `columns` they are inferred from the files."""

    path: str
    options: FileOptions = field(default_factory=FileOptions)
    columns: tuple[Column, ...] = ()
    position: Position | None = None


def read_files_call(script: Script, call: exp.Anonymous) -> FileRead:
    """Parses the arguments of read_files: a path, then `name => literal`."""
    from penstock.sql.ddl import parse_columns

    def refuse(code: str, detail: str, node: exp.Expr, hint: str | None = None) -> PenstockError:
        error = script.refusal(code, detail, node, hint=hint)
        error.position = error.position or script.place(call)
        return error

    hint = "Write read_files('folder/*.csv', format => 'csv', header => true)."
    args = list(call.expressions)
    if not args or not (isinstance(args[0], exp.Literal) and args[0].is_string):
        raise refuse("PSK-1007", "read_files() needs a path as its first argument, a string", call, hint)
    given: dict[str, str] = {}
    for arg in args[1:]:
        if not isinstance(arg, exp.Kwarg):
            raise refuse("PSK-1007", "the options of read_files() have names", arg, hint)
        name, value = arg.this.name.lower(), arg.expression
        if not isinstance(value, (exp.Literal, exp.Boolean)):
            raise refuse("PSK-1011", f"option {name} of read_files() is not a literal", arg, hint)
        if name in given:
            raise refuse("PSK-1010", f"option {name} is specified twice", arg)
        given[name] = str(value.this).lower() if isinstance(value, exp.Boolean) else value.name
    columns: tuple[Column, ...] = ()
    if "schema" in given:
        columns = parse_columns(given["schema"])
    options = _options("read_files()", _READING, given, lambda c, d, h: refuse(c, d, call, h))
    return FileRead(args[0].name, options, columns, script.place(call))


def parse_file_options(cursor: Cursor, *, loading: bool) -> FileOptions:
    """`[WITH] (format = 'csv', header = true)`, also in the style of PostgreSQL: `(FORMAT csv, HEADER)`."""
    where = cursor.here()
    given: dict[str, str] = {}
    with_ = cursor.accept("WITH")
    if cursor.accept("("):
        while not cursor.accept(")"):
            if given:
                cursor.expect(",")
            key = cursor.name("an option name").lower()
            if key in given:
                cursor.index -= 1
                raise cursor.fail("PSK-1010", f"option {key} is specified twice")
            if not cursor.accept("="):
                cursor.accept("=>")
            given[key] = _value(cursor, key)
    elif with_:
        raise cursor.error("expected (")
    return _options(
        "COPY", _LOADING if loading else _WRITING, given, lambda c, d, h: cursor.fail(c, d, hint=h, position=where)
    )


def _value(cursor: Cursor, key: str) -> str:
    token = cursor.peek()
    if token is None or cursor.at(",") or cursor.at(")"):
        if key in _FLAGS:
            return "true"
        raise cursor.error("expected an option value")
    if token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER) or is_name(token):
        return cursor.next().text
    raise cursor.error("expected an option value")


def _options(what: str, known: tuple[str, ...], given: Mapping[str, str], refuse: Refuse) -> FileOptions:
    for name in given:
        if name not in known:
            best = nearest(name, known)
            hint = f"Did you mean {best}?" if best else f"The options are {', '.join(known)}."
            raise refuse("PSK-1010", f"{what} has no option {name}", hint)
    format = given.get("format")
    if format is not None and format.lower() not in FORMATS:
        raise refuse("PSK-1011", f"format = '{format}' is not one of {', '.join(FORMATS)}", None)
    format = format.lower() if format is not None else None
    if format in ("json", "parquet"):
        for name in _CSV:
            if name in given:
                raise refuse("PSK-1011", f"option {name} is for CSV files, not for {format}", None)
    flags = {}
    for name in _FLAGS:
        flags[name] = given.get(name, "true" if name == "header" else "false").lower()
        if flags[name] not in ("true", "false"):
            raise refuse("PSK-1011", f"{name} = '{given[name]}' is neither true nor false", None)
    delimiter = given.get("delimiter", ",").replace("\\t", "\t")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise refuse("PSK-1011", f"delimiter = '{delimiter}' is not one character of ASCII, other than a quote", None)
    return FileOptions(
        format, flags["header"] == "true", delimiter, given.get("null", ""), flags["overwrite"] == "true"
    )
