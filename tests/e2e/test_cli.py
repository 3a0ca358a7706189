"""The command as users run it: real processes, real engine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

from tests.e2e.command import COMMAND, ENVIRONMENT, TIMEOUT_S

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


def test_a_pipeline_that_runs_until_ctrl_c_and_then_its_folder(tmp_path: Path) -> None:
    """Two processes: every start of a JVM takes seconds."""
    folder = str(tmp_path / "data")
    process = subprocess.Popen(
        [*COMMAND, "run", "-", "--folder", folder, "--follow"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(SCRIPT)
    process.stdin.close()
    process.stdin = None
    # Ctrl-C at once: it must not matter when it comes
    assert "running" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["symbol", "volume", "trades"]
    assert ["A", "40", "2"] in lines and ["B", "20", "1"] in lines and lines[-1][:2] == ["2", "rows"]

    # a tail that ends by its limit, then an error, which ends the script
    second = "SUBSCRIBE totals WITH (snapshot = true);\n\nSELECT symbol\nFROM tradez;\nFLUSH;"
    answer = penstock("sql", "-f", folder, "--format", "jsonl", "--limit", "2", "-c", second)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert sorted((r["symbol"], r["volume"], r["__weight"]) for r in rows) == [("A", 40, 1), ("B", 20, 1)]
    assert answer.returncode == 1
    assert answer.stderr.startswith("PSK-1002: ") and "Traceback" not in answer.stderr
    said = answer.stderr.splitlines()
    assert said[said.index("4 | FROM tradez;") + 1] == " " * 9 + "^" * 6
    assert "trades" in next(line for line in said if line.startswith("Hint: "))
    assert said[-1].startswith("In statement 2 of 3 (line 3)")


def test_doctor_runs_a_pipeline(tmp_path: Path) -> None:
    answer = penstock("doctor", "--folder", str(tmp_path))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "first row through" in answer.stdout and "fail" not in answer.stdout


def test_the_demo_adds_up() -> None:
    answer = penstock("demo", "--plain", "--seconds", "13", "--rate", "2000")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "✓ Adds up" in answer.stdout
    late = re.search(r"late rows\s+([\d,]+)", answer.stdout)
    bars = re.search(r"windows closed\s+([\d,]+)", answer.stdout)
    assert late is not None and int(late.group(1).replace(",", "")) >= 1
    assert bars is not None and int(bars.group(1).replace(",", "")) >= 100
