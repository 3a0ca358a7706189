"""The commands and their options. What they do is imported when they run, so that --help needs no engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import console, failure, options
from penstock.cli.commands import SWITCH, Command, Group
from penstock.cli.interrupts import INTERRUPTED, interrupts
from penstock.cli.options import Debug, Folder, Format, Level, Output, Sort
from penstock.cli.version import version

app = typer.Typer(
    name="penstock",
    cls=Group,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"penstock {version()}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def penstock(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, metavar=SWITCH, help="Show the version and exit."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """A streaming SQL database on Apache Spark.

    Without a command it starts the shell on a temporary database.

    [bold]Examples[/bold]

    \b
      penstock                         a shell on a temporary database
      penstock shell ./data            a shell on a folder
      penstock run pipeline.sql        run a script
      penstock sql -c "SELECT 1"       run one statement
      penstock top ./data              watch a database that another process has open
      penstock logs ./data             what the process that has it open reports
      penstock demo                    watch a market-data pipeline at work
      penstock doctor                  check the installation
      penstock checkpoint list ./data  show the checkpoints of a folder
    """
    if context.invoked_subcommand is None:
        _shell(None)


@app.command(cls=Command)
def shell(
    folder: Annotated[str | None, typer.Argument(metavar="FOLDER", help="The database's folder.")] = None,
    debug: Debug = False,
) -> None:
    """Run SQL interactively.

    Statements end with a semicolon and may span lines.
    SUBSCRIBE prints rows as they arrive, until Ctrl-C.
    The word help lists the shell's own commands.
    Input that does not come from a terminal is run as a script.

    [bold]Examples[/bold]

    \b
      penstock shell                   a temporary database
      penstock shell ./data            a folder, which keeps everything
      penstock shell ./data < a.sql    the same as penstock run
    """
    _shell(folder)


def _shell(folder: str | None) -> None:
    if not sys.stdin.isatty():
        from penstock.cli.run import run_script

        raise typer.Exit(run_script("-", folder, follow=False, output=Format.TABLE))
    from penstock.cli.shell import run_shell

    raise typer.Exit(run_shell(folder))


@app.command(cls=Command)
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A script; [bold]-[/bold] reads standard input.")],
    folder: Folder = None,
    follow: Annotated[
        bool, typer.Option("--follow", metavar=SWITCH, help="Keep the pipeline running after the script, until Ctrl-C.")
    ] = False,
    output: Output = Format.TABLE,
    debug: Debug = False,
) -> None:
    """Run a script and print its last result.

    It stops at the first error and shows its position (exit code 1).
    A SUBSCRIBE in the script prints its rows until Ctrl-C.

    [bold]Examples[/bold]

    \b
      penstock run pipeline.sql --folder ./data
      penstock run pipeline.sql --folder ./data --follow
      echo "SELECT 1 AS one;" | penstock run -
    """
    from penstock.cli.run import run_script

    raise typer.Exit(run_script(file, folder, follow=follow, output=output))


@app.command(cls=Command)
def sql(
    command: Annotated[str, typer.Option("--command", "-c", metavar="SQL", help="One or several statements.")],
    folder: Folder = None,
    output: Output = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Print at most this many rows; ends a SUBSCRIBE."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run statements given on the command line and print the last result.

    Only rows go to standard output.
    SUBSCRIBE prints each row as it arrives, until Ctrl-C or --limit.

    [bold]Examples[/bold]

    \b
      penstock sql -c "SELECT 1 AS one"
      penstock sql -f ./data -c "SELECT * FROM vwap" --format csv > vwap.csv
      penstock sql -f ./data -c "SUBSCRIBE vwap" --format jsonl --limit 100
    """
    from penstock.cli.run import run_command

    raise typer.Exit(run_command(command, folder, output=output, limit=limit))


@app.command(cls=Command)
def logs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The database's folder.")],
    count: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Show the last N reports.")] = 100,
    level: Annotated[Level, typer.Option("--level", "-l", help="Show reports of this level and above.")] = Level.INFO,
    follow: Annotated[
        bool, typer.Option("--follow", metavar=SWITCH, help="Keep showing reports, until Ctrl-C.")
    ] = False,
    raw: Annotated[bool, typer.Option("--json", metavar=SWITCH, help="Print the JSON lines as they are.")] = False,
    debug: Debug = False,
) -> None:
    """Show what the process that has a database open reports.

    The database must be opened with the setting logging.file = true.
    The database is not opened, so this works while another process has it.

    [bold]Examples[/bold]

    \b
      penstock logs ./data
      penstock logs ./data --level error --follow
      penstock logs ./data --json | jq .message
    """
    from penstock.cli.logs import show_logs

    raise typer.Exit(show_logs(folder, count=count, level=level.value, follow=follow, raw=raw))


@app.command(cls=Command)
def top(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The database's folder.")],
    sort: Annotated[Sort, typer.Option("--sort", "-s", help="The column to sort by.")] = Sort.NAME,
    name: Annotated[
        str | None, typer.Option("--object", "-o", metavar="NAME", help="All figures of one object, and its operators.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", metavar=SWITCH, help="Show the figures once and exit.")] = False,
    debug: Debug = False,
) -> None:
    """Watch a database that another process has open.

    The database must be opened with the setting logging.status = true.
    Keys: s sorts by the next column, the arrows mark an object, Enter shows its
    figures and operators, Esc goes back, q or Ctrl-C ends it.

    [bold]Examples[/bold]

    \b
      penstock top ./data
      penstock top ./data --sort lag_ms
      penstock top ./data --object vwap --once
    """
    from penstock.cli.top import show_top

    raise typer.Exit(show_top(folder, sort=sort.value, name=name, once=once))


@app.command(cls=Command)
def doctor(
    folder: Annotated[
        Path | None, typer.Option("--folder", "-f", metavar="FOLDER", help="Check this folder's disk.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", metavar=SWITCH, help="Do not start Spark.")] = False,
    debug: Debug = False,
) -> None:
    """Check that Penstock's requirements are met.

    A failed check is shown with advice; the exit code is then 1.

    [bold]Examples[/bold]

    \b
      penstock doctor
      penstock doctor --quick --folder ./data
    """
    from penstock.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(folder, quick=quick))


@app.command(cls=Command)
def prepare(debug: Debug = False) -> None:
    """Make later processes start faster, by archiving the classes that Spark loads.

    The first process on a machine would do it when it ends. Takes half a minute, once for each version of Penstock, Spark and Java.
    """
    from penstock.cli.prepare import run_prepare

    raise typer.Exit(run_prepare())


checkpoint = typer.Typer(cls=Group, rich_markup_mode="rich", add_completion=False)
app.add_typer(checkpoint, name="checkpoint")


@checkpoint.callback()
def checkpoints() -> None:
    """List, verify, restore and remove checkpoints of a folder.

    [bold]Examples[/bold]

    \b
      penstock checkpoint list ./data
      penstock checkpoint verify ./data
      penstock checkpoint restore ./data 7
      penstock checkpoint export ./data 7 s3://backups/shop
      penstock checkpoint import s3://backups/shop ./copy
      penstock checkpoint prune ./data --keep 1
    """


Database = Annotated[Path, typer.Argument(metavar="FOLDER", help="The database's folder.")]


Where = Annotated[
    str,
    typer.Argument(
        metavar="PLACE", help="The folder of a database, or a place that checkpoints were exported or uploaded to."
    ),
]


@checkpoint.command("list", cls=Command)
def list_checkpoints(place: Where, output: Output = Format.TABLE, debug: Debug = False) -> None:
    """Show the checkpoints of a folder, which may be in use, or of a place that they were exported or uploaded to.

    [bold]Examples[/bold]

    \b
      penstock checkpoint list ./data
      penstock checkpoint list s3://backups/shop
    """
    from penstock.cli.checkpoints import list_checkpoints

    raise typer.Exit(list_checkpoints(place, verify=False, output=output))


@checkpoint.command("verify", cls=Command)
def verify_checkpoints(place: Where, output: Output = Format.TABLE, debug: Debug = False) -> None:
    """Read all of every checkpoint and compare the checksums; exit code 1 if one is damaged.

    [bold]Examples[/bold]

    \b
      penstock checkpoint verify ./data
      penstock checkpoint verify s3://backups/shop
    """
    from penstock.cli.checkpoints import list_checkpoints

    raise typer.Exit(list_checkpoints(place, verify=True, output=output))


@checkpoint.command("restore", cls=Command)
def restore_checkpoint(
    folder: Database,
    id: Annotated[int, typer.Argument(metavar="ID", help="The checkpoint, as list shows it.")],
    no_backup: Annotated[
        bool, typer.Option("--no-backup", metavar=SWITCH, help="Do not keep the state before as a checkpoint.")
    ] = False,
    keep_delivered: Annotated[
        bool,
        typer.Option("--keep-delivered", metavar=SWITCH, help="Leave with sinks what they cannot take back."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Take a database that is not in use back to a checkpoint.

    Objects that were dropped since are there again, and later ones are gone.
    When the database is opened, sinks take back what they have delivered since.
    The state before is kept as a checkpoint, too.
    If the database is damaged and does not open, its files are kept instead, in the folder damaged-1.

    [bold]Examples[/bold]

    \b
      penstock checkpoint restore ./data 7
      penstock checkpoint restore ./data 7 --no-backup --keep-delivered
    """
    from penstock.cli.checkpoints import restore_checkpoint

    raise typer.Exit(restore_checkpoint(folder, id, backup=not no_backup, keep_delivered=keep_delivered))


Url = Annotated[str, typer.Argument(metavar="PLACE", help="A folder, file://…, or s3://bucket/prefix.")]


@checkpoint.command("export", cls=Command)
def export_checkpoint(
    folder: Database,
    id: Annotated[int, typer.Argument(metavar="ID", help="The checkpoint, as list shows it.")],
    place: Url,
    debug: Debug = False,
) -> None:
    """Copy a checkpoint of a folder, which may be in use, to another place.

    Everything is compared with its checksums, here and there.

    [bold]Examples[/bold]

    \b
      penstock checkpoint export ./data 7 s3://backups/shop
    """
    from penstock.cli.checkpoints import export

    raise typer.Exit(export(folder, id, place))


@checkpoint.command("import", cls=Command)
def import_checkpoint(
    place: Url,
    folder: Database,
    id: Annotated[
        int | None,
        typer.Option("--id", metavar="ID", help="Of uploaded checkpoints, which one; the newest without it."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Make a database from an exported or uploaded checkpoint, in a new folder.

    Sinks go on where they were: only one of both databases may deliver.

    [bold]Examples[/bold]

    \b
      penstock checkpoint import s3://backups/shop ./copy
      penstock checkpoint import s3://backups/shop ./copy --id 7
    """
    from penstock.cli.checkpoints import import_

    raise typer.Exit(import_(place, folder, id))


@checkpoint.command("prune", cls=Command)
def prune_checkpoints(
    folder: Database,
    keep: Annotated[int, typer.Option("--keep", min=1, metavar="N", help="How many of the newest are kept.")] = 1,
    debug: Debug = False,
) -> None:
    """Remove all but the newest checkpoints of a folder that is not in use.

    [bold]Examples[/bold]

    \b
      penstock checkpoint prune ./data --keep 1
    """
    from penstock.cli.checkpoints import prune_checkpoints

    raise typer.Exit(prune_checkpoints(folder, keep))


@app.command(cls=Command)
def demo(
    seconds: Annotated[
        int, typer.Option("--seconds", "-s", min=5, max=3600, metavar="N", help="How long rows are pushed.")
    ] = 40,
    rate: Annotated[
        int, typer.Option("--rate", min=10, max=100_000, metavar="N", help="Rows to push per second.")
    ] = 3000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random prices.")] = 7,
    plain: Annotated[bool, typer.Option("--plain", metavar=SWITCH, help="Lines instead of a screen.")] = False,
    debug: Debug = False,
) -> None:
    """Watch a market-data pipeline at work, on a temporary database.

    It pushes trades of twelve symbols, and shows one-second bars as they close,
    changing positions, the top movers, and late trades.
    At the end it checks that no share was lost or counted twice.
    Ctrl-C ends it early.

    [bold]Examples[/bold]

    \b
      penstock demo
      penstock demo --seconds 15 --rate 10000
      penstock demo --plain | tee demo.log
    """
    from penstock.cli.demo import run_demo

    raise typer.Exit(run_demo(seconds=seconds, rate=rate, seed=seed, plain=plain))


def main() -> None:
    """Run the command line of this process and exit with its code. Tracebacks are only shown with --debug."""
    console.utf8_output()
    try:
        interrupts.install()
        app(prog_name="penstock")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # the reader of the pipe is gone, so nobody can see a message
        sys.stderr.close()
        sys.exit(failure.FAILED)
    except Exception as error:
        failure.report(error, debug=options.debug_wanted)
        sys.exit(failure.FAILED)
