"""The table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.summary import Line, Value, number
from benchmarks.work import TITLES, Row

MARKS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "[yellow]?[/yellow]"}


def show(lines: Sequence[Line], console: Console, *, quick: bool) -> None:
    title = "Medians, and the smallest and largest sample"
    if quick:
        title += ". Small sizes: fewer rows than the lines say, so that no bar is really tested"
    table = Table(title=title, title_justify="left")
    table.add_column("work")
    competitors = [c for c in TITLES if any(c in line.values or c in line.missing for line in lines)]
    for competitor in competitors:
        table.add_column(TITLES[competitor], justify="right")
    table.add_column("bar")
    table.add_column("ratio", justify="right")
    table.add_column("met")
    work = lines[0].work if lines else ""
    for line in lines:
        if line.work != work:
            table.add_section()
            work = line.work
        table.add_row(
            line.row.title,
            *(_cell(line, competitor) for competitor in competitors),
            "\n".join(j.bar for j in line.judged),
            "\n".join(f"{j.ratio:.2f}" if j.ratio is not None else "" for j in line.judged),
            "\n".join(MARKS[j.met] for j in line.judged),
        )
    console.print(table)
    for reason in dict.fromkeys(
        f"{TITLES[who]}, {line.work}: {why}" for line in lines for who, why in line.missing.items()
    ):
        console.print(reason, markup=False)
    for line in lines:
        for who, what in line.row.refused.items():
            console.print(f"{TITLES[who]} cannot run {line.row.title}: {what}", markup=False)


def _cell(line: Line, competitor: str) -> str:
    value = line.values.get(competitor)
    if value is not None:
        return _value(value, line.row)
    if competitor in line.row.refused:
        return "[dim]cannot[/dim]"
    return "[yellow]none[/yellow]" if competitor in line.missing else ""


def _value(value: Value, row: Row) -> str:
    text = f"{number(value.median, row)} {row.unit}"
    if value.low == value.high:
        return text
    return f"{text}\n[dim]{number(value.low, row)} – {number(value.high, row)}[/dim]"
