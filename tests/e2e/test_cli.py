"""The command as users run it: real processes, real engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "LINES": "40", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
# a cold JVM on a loaded machine
TIMEOUT_S = 180

SCRIPT = """\
CREATE SOURCE trades (symbol STRING, price DOUBLE, volume BIGINT);
CREATE MATERIALIZED VIEW totals AS
  SELECT symbol, sum(volume) AS volume, count(*) AS trades FROM trades GROUP BY symbol;
INSERT INTO trades VALUES ('A', 1.5, 10), ('B', 2.5, 20), ('A', 3.5, 30);
FLUSH;
SELECT symbol, volume, trades FROM totals ORDER BY symbol;
"""


def penstock(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=ENVIRONMENT,
    )


def test_a_script_and_then_its_folder(tmp_path: Path) -> None:
    script = tmp_path / "pipeline.sql"
    script.write_text(SCRIPT)
    folder = str(tmp_path / "data")
    first = penstock("run", str(script), "--folder", folder)
    assert (first.returncode, first.stderr) == (0, "")
    lines = [line.split() for line in first.stdout.splitlines()]
    assert lines[0] == ["symbol", "volume", "trades"]
    assert ["A", "40", "2"] in lines and ["B", "20", "1"] in lines and lines[-1][:2] == ["2", "rows"]
    again = penstock("sql", "-f", folder, "--format", "csv", "-c", "SELECT symbol, volume FROM totals ORDER BY symbol")
    assert (again.returncode, again.stdout, again.stderr) == (0, "symbol,volume\nA,40\nB,20\n", "")


def test_standard_input_and_json() -> None:
    answer = penstock("run", "-", "--format", "json", stdin=SCRIPT)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == [
        {"symbol": "A", "volume": 40, "trades": 2},
        {"symbol": "B", "volume": 20, "trades": 1},
    ]


def test_subscribe_streams_rows_up_to_the_limit() -> None:
    setup = SCRIPT.rpartition("SELECT symbol, volume")[0]
    answer = penstock(
        "sql", "--format", "jsonl", "--limit", "2", "-c", setup + "SUBSCRIBE totals WITH (snapshot = true)"
    )
    assert answer.returncode == 0, answer.stderr
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert sorted((r["symbol"], r["volume"], r["__weight"]) for r in rows) == [("A", 40, 1), ("B", 20, 1)]


def test_an_error_has_code_caret_and_statement_and_no_traceback(tmp_path: Path) -> None:
    script = tmp_path / "bad.sql"
    script.write_text("CREATE SOURCE trades (v BIGINT);\n\nSELECT v\nFROM tradez;\nFLUSH;\n")
    answer = penstock("run", str(script))
    assert answer.returncode == 1 and answer.stdout == ""
    assert answer.stderr.startswith("PSK-1002: ") and "Traceback" not in answer.stderr
    lines = answer.stderr.splitlines()
    assert "4 | FROM tradez;" in lines
    assert lines[lines.index("4 | FROM tradez;") + 1] == " " * 9 + "^" * 6
    assert "trades" in next(line for line in lines if line.startswith("Hint: "))
    assert lines[-1].startswith("In statement 2 of 3 (line 3)")


def test_follow_runs_until_ctrl_c_and_closes_cleanly(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    process = subprocess.Popen(
        [*COMMAND, "run", "-", "--folder", folder, "--follow"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(SCRIPT)
    process.stdin.close()
    process.stdin = None
    assert "running" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "") and "A" in out
    assert (
        penstock("sql", "-f", folder, "--format", "jsonl", "-c", "SELECT count(*) AS n FROM totals").stdout
        == '{"n": 2}\n'
    )


def test_doctor_runs_a_pipeline(tmp_path: Path) -> None:
    answer = penstock("doctor", "--folder", str(tmp_path))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "first row through" in answer.stdout and "fail" not in answer.stdout


def test_the_demo_adds_up() -> None:
    answer = penstock("demo", "--plain", "--seconds", "16", "--rate", "2000")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "✓ Adds up" in answer.stdout
    late = re.search(r"late rows\s+([\d,]+)", answer.stdout)
    bars = re.search(r"windows closed\s+([\d,]+)", answer.stdout)
    assert late is not None and int(late.group(1).replace(",", "")) >= 1
    assert bars is not None and int(bars.group(1).replace(",", "")) >= 100
