"""The command line itself: help, version, exit codes, and errors without a traceback. No JVM is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import options
from penstock.cli.app import app
from penstock.cli.failure import describe
from penstock.cli.run import read_script
from penstock.errors import PenstockError, Position, fail


def penstock(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", *arguments],
        input=stdin, capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    "command", [[], ["shell"], ["run"], ["sql"], ["doctor"], ["demo"], ["checkpoint"], ["checkpoint", "list"]]
)
def test_help_has_examples(command: list[str]) -> None:
    answer = CliRunner().invoke(app, [*command, "--help"], prog_name="penstock")
    assert answer.exit_code == 0
    assert "Examples" in answer.stdout and " ".join(["penstock", *command]) in answer.stdout


def test_help_of_the_process() -> None:
    answer = penstock("--help")
    assert answer.returncode == 0 and answer.stderr == "" and "Usage: penstock" in answer.stdout


def test_help_loads_no_engine() -> None:
    code = "import sys, penstock.cli.app; print([m for m in ('pyspark', 'duckdb', 'pyarrow', 'sqlglot') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert answer.stdout == "[]\n"


def test_version() -> None:
    answer = CliRunner().invoke(app, ["--version"])
    assert answer.exit_code == 0 and answer.stdout.startswith("penstock ")


@pytest.mark.parametrize(
    "arguments", [["sql"], ["nonsense"], ["sql", "-c", "FLUSH", "--format", "xml"], ["demo", "--seconds", "0"]]
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_script_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_bytes(b"\xef\xbb\xbfSHOW TABLES")
    assert read_script(str(script)) == "SHOW TABLES"


def test_a_missing_script_is_an_error_without_traceback(tmp_path: Path) -> None:
    answer = penstock("run", str(tmp_path / "none.sql"))
    assert answer.returncode == 1 and answer.stdout == ""
    assert answer.stderr.startswith("PSK-0009: ") and "Traceback" not in answer.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    answer = penstock("run", "--debug", str(tmp_path / "x"))
    assert answer.returncode == 1 and "Traceback" in answer.stderr and "PSK-0009: " in answer.stderr


def test_debug_is_an_option_of_all_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "debug_wanted", False)
    answer = CliRunner().invoke(app, ["--debug", "run", str(tmp_path / "x")])
    assert isinstance(answer.exception, PenstockError) and options.debug_wanted


def test_an_error_is_shown_with_caret_and_hint() -> None:
    error = fail(
        "PSK-1002",
        "There is no tradez.",
        hint="Did you mean trades?",
        position=Position(1, 15, 6),
        sql="SELECT * FROM tradez",
    )
    text = describe(error)
    assert text.plain == (
        "PSK-1002: There is no tradez.\n1 | SELECT * FROM tradez\n                  ^^^^^^\nHint: Did you mean trades?"
    )


def test_what_is_not_ours_is_an_internal_error() -> None:
    text = describe(ValueError("x")).plain
    assert text.startswith("PSK-8001: ValueError: x") and "--debug" in text


def test_quick_doctor_starts_no_spark(tmp_path: Path) -> None:
    answer = penstock("doctor", "--quick", "--folder", str(tmp_path))
    assert answer.returncode in (0, 1) and "Python" in answer.stdout and "pipeline" not in answer.stdout
