"""The shell's own commands: a backslash or a dot, and a letter or a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rich.table import Table

from penstock.errors import fail


class Help(NamedTuple):
    usage: str
    meaning: str


COMMANDS: dict[str, Help] = {
    "d": Help(r"\d [NAME]", "list the objects, or describe one"),
    "i": Help(r"\i FILE", "run a script"),
    "timing": Help(r"\timing", "turn the display of run times on or off"),
    "x": Help(r"\x", "turn expanded display (a line per column) on or off"),
    "q": Help(r"\q", "quit (also Ctrl-D)"),
    "?": Help(r"\?", "this list"),
}


@dataclass(frozen=True)
class ShellCommand:
    """A shell command as typed: its name without the backslash, and the rest of the line."""

    name: str
    argument: str


def parse(line: str) -> ShellCommand | None:
    """The command on a line, or None if the line is SQL. Raises PSK-0009 for an unknown command."""
    text = line.strip().rstrip(";").strip()
    if text.lower() in ("exit", "quit"):
        return ShellCommand("q", "")
    if text.lower() == "help":
        return ShellCommand("?", "")
    if not text.startswith(("\\", ".")):
        return None
    name, _, argument = text[1:].partition(" ")
    if name not in COMMANDS:
        raise fail("PSK-0009", f"There is no command {text[:1]}{name}.", hint=r"\? lists the commands.")
    argument = argument.strip()
    if argument and "[" not in COMMANDS[name].usage and " " not in COMMANDS[name].usage:
        raise fail("PSK-0009", f"\\{name} takes no argument.", hint=f"Write {COMMANDS[name].usage}.")
    if not argument and name == "i":
        raise fail("PSK-0009", r"\i needs a file.", hint=f"Write {COMMANDS[name].usage}.")
    return ShellCommand(name, argument)


def help_table() -> Table:
    """The list that `\\?` prints."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for entry in COMMANDS.values():
        table.add_row(entry.usage.replace("[", r"\["), entry.meaning)
    table.add_row("Ctrl-C", "cancel the statement, end a SUBSCRIBE, or clear the line")
    table.add_row("Ctrl-D", "leave")
    return table
