"""`penstock run` and `penstock sql`: run statements without a prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import console, failure, options
from penstock.cli.execute import Outcome, execute, follow
from penstock.cli.interrupts import interrupts
from penstock.cli.options import Format
from penstock.cli.render import print_result
from penstock.cli.session import database, status
from penstock.cli.statements import Statement, split
from penstock.errors import PenstockError, fail

if TYPE_CHECKING:
    from penstock.api import Database


def run_script(file: str, folder: str | None, *, follow: bool, output: Format) -> int:
    """Run a file, or standard input for `-`. Returns the exit code."""
    script = read_script(file)
    with database(folder) as db:
        code = run_statements(db, script, output=output)
        if code == 0 and follow:
            _stay()
    return code


def run_command(command: str, folder: str | None, *, output: Format, limit: int | None) -> int:
    """Run the text of `sql -c`. Returns the exit code."""
    with database(folder) as db:
        return run_statements(db, command, output=output, limit=limit)


def read_script(file: str) -> str:
    """The text of a script."""
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise fail(
            "PSK-0009", f"{file} cannot be read: {error.strerror}.", hint="Pass a file, or - for standard input."
        ) from error
    except UnicodeDecodeError as error:
        raise fail("PSK-0009", f"{file} is not UTF-8 text.", hint="Pass a file of SQL statements.") from error


def run_statements(db: Database, script: str, *, output: Format, limit: int | None = None) -> int:
    """Run a script up to its first error, with progress on stderr, and print the last result. Returns the exit code."""
    statements = split(script)
    last: Outcome | None = None
    try:
        order = _in_order(db, script, statements)
    except PenstockError as error:
        failure.report(error, debug=options.debug_wanted)
        return failure.FAILED
    for i, statement in order:
        try:
            with status(f"[{i}/{len(statements)}] {statement.summary}"):
                last = execute(db, statement, script)
            if last.subscription is not None:
                follow(last.subscription, output, console.out(), limit=limit)
        except PenstockError as error:
            failure.report(error, debug=options.debug_wanted)
            if len(statements) > 1:
                console.err().print(
                    f"In statement {i} of {len(statements)} (line {statement.line}); the statements before it were executed.",
                    style="dim",
                    markup=False,
                )
            return failure.FAILED
    if last is not None and last.table is not None:
        print_result(last.table, output, console.out(), elapsed=last.elapsed, limit=limit)
    return 0


def _in_order(db: Database, script: str, statements: list[Statement]) -> list[tuple[int, Statement]]:
    """The statements with their numbers, as the database would run the whole script. Errors of other kinds are for the statement that has them."""
    from penstock.sql.ordering import ordered
    from penstock.sql.script import parse_script

    written = list(enumerate(statements, 1))
    if len(statements) < 2:
        return written
    try:
        parsed = parse_script(script, connectors="keep")
    except PenstockError:
        return written
    known = {s.name.lower() for s in db.status()}
    order = ordered(parsed, known.__contains__)
    return [(n, statements[n - 1]) for n, _ in order] if len(parsed) == len(statements) else written


def _stay() -> None:
    """Keep the pipeline running until Ctrl-C or a termination signal."""
    with interrupts.awaited() as asked:
        console.err().print("The pipeline is running. Press Ctrl-C to stop.", style="dim")
        with status("Running …"):
            asked.wait()
