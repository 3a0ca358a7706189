"""The read-eval-print loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from penstock.cli import console, failure, options
from penstock.cli.execute import Outcome, execute, follow
from penstock.cli.interrupts import interrupts
from penstock.cli.options import Format
from penstock.cli.render import duration, grid, print_expanded, print_table
from penstock.cli.run import read_script
from penstock.cli.session import database, status
from penstock.cli.shell.catalogue import read_names
from penstock.cli.shell.commands import ShellCommand, help_table, parse
from penstock.cli.shell.completion import Names
from penstock.cli.statements import split
from penstock.cli.version import version
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api import Database

_CHANGES_NAMES = frozenset({"CREATE", "DROP", "ALTER", "RESTORE"})


def run_shell(folder: str | None) -> int:
    """Run the shell on a folder, or on a temporary database. Returns the exit code."""
    from penstock.cli.shell.prompt import prompt_session, read

    with database(folder) as db:
        shell = Shell(db)
        session = prompt_session(lambda: shell.names)
        place = folder if folder is not None else "a temporary database"
        console.out().print(
            f"Penstock {version()} on {place}. \\? for help, Ctrl-D to quit.", style="dim", markup=False
        )
        while not shell.left:
            try:
                with interrupts.at_prompt():
                    text = read(session)
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            shell.handle(text)
    return 0


class Shell:
    """The state of the shell between inputs."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._out = console.out()
        self.timing = True
        self.expanded = False
        self.left = False
        self.names = Names()
        self._refresh_names()

    def handle(self, text: str) -> None:
        """Run one input. Errors are printed; Ctrl-C cancels the statement and returns to the prompt."""
        try:
            with interrupts.cancellable():
                command = parse(text)
                if command is not None:
                    self._command(command)
                else:
                    self._script(text)
        except KeyboardInterrupt:
            self._out.print("Cancelled.", style="yellow")
        except Exception as error:
            failure.report(error, debug=options.debug_wanted)

    def _script(self, text: str) -> None:
        statements = split(text)
        try:
            for statement in statements:
                with status("Running …"):
                    outcome = execute(self._db, statement, text)
                self._show(outcome)
        finally:
            if any(s.verb in _CHANGES_NAMES for s in statements):
                self._refresh_names()

    def _show(self, outcome: Outcome) -> None:
        elapsed = outcome.elapsed if self.timing else None
        if outcome.subscription is not None:
            with interrupts.awaited():
                self._out.print("Ctrl-C ends the subscription.", style="dim")
                follow(outcome.subscription, Format.TABLE, self._out)
        elif outcome.table is None:
            done = Text(f"{outcome.statement.verb} done", style="green")
            self._out.print(done if elapsed is None else done.append(f" · {duration(elapsed)}", style="dim"))
        elif self.expanded:
            print_expanded(outcome.table, self._out, elapsed=elapsed)
        else:
            print_table(outcome.table, self._out, elapsed=elapsed)

    def _command(self, command: ShellCommand) -> None:
        match command.name:
            case "q":
                self.left = True
            case "?":
                self._out.print(help_table())
            case "timing":
                self.timing = not self.timing
                self._out.print(f"Timing is {'on' if self.timing else 'off'}.")
            case "x":
                self.expanded = not self.expanded
                self._out.print(f"Expanded display is {'on' if self.expanded else 'off'}.")
            case "i":
                self._script(read_script(command.argument))
            case "d" if command.argument:
                self._script(f"DESCRIBE {command.argument};")
            case "d":
                self._list()

    def _list(self) -> None:
        self._refresh_names()
        found = [(n, kind, ", ".join(self.names.columns.get(n, ()))) for n, kind in self.names.kinds.items()]
        if found:
            self._out.print(grid(["name", "kind", "columns"], [False, False, False], list(found)))
        else:
            self._out.print("There are no objects yet.", style="dim")

    def _refresh_names(self) -> None:
        try:
            self.names = read_names(self._db)
        except PenstockError as error:
            failure.report(error, debug=options.debug_wanted)
