"""The shell as a person sees it: a real terminal, a real engine."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.command import COMMAND, ENVIRONMENT, TIMEOUT_S
from tests.e2e.terminal import Terminal

# an empty input line; one that is drawn again has text in it
PROMPT = r"penstock> \r"
# no machine finishes this before somebody presses Ctrl-C
ENDLESS = "SELECT count(*) FROM numbers a, numbers b, numbers c, numbers d, numbers e, numbers f WHERE a.v + b.v + c.v + d.v + e.v + f.v < 0;\r"


def test_the_shell(tmp_path: Path) -> None:
    with Terminal(COMMAND, {**ENVIRONMENT, "XDG_STATE_HOME": str(tmp_path)}, timeout=TIMEOUT_S) as shell:
        shell.expect(PROMPT)
        shell.type("CREATE SOURCE numbers (v BIGINT);\r")
        shell.expect("CREATE done")

        # a statement over several lines, its last name completed from the catalogue
        shell.expect(PROMPT)
        shell.type("CREATE MATERIALIZED VIEW t AS\r")
        shell.expect("…>")
        shell.type("SELECT sum(v) AS total FROM num")
        shell.expect("numbers")
        shell.type("\t;\r")
        shell.expect("CREATE done")

        # Ctrl-C ends the tail, and the shell goes on
        shell.expect(PROMPT)
        shell.type("SUBSCRIBE t;\r")
        shell.expect("Ctrl-C ends the subscription")
        shell.type("\x03")
        shell.expect("0 rows")
        shell.expect(PROMPT)
        shell.type("INSERT INTO numbers SELECT explode(sequence(1, 100000)); FLUSH; SELECT total FROM t;\r")
        shell.expect("FLUSH done")
        shell.expect("5000050000")

        # Ctrl-C cancels a statement that runs, and the shell goes on
        shell.expect(PROMPT)
        shell.type(ENDLESS)
        shell.expect("Running")
        shell.type("\x03")
        shell.expect("Cancelled")
        shell.expect(PROMPT)
        shell.type("SELECT nope FROM t;\r")
        shell.expect("PSK-1004")
        shell.expect(PROMPT)
        shell.type("\\d\r")
        shell.expect("total")

        # Ctrl-C clears a line
        shell.expect(PROMPT)
        shell.type("half a statement\x03")
        shell.expect(PROMPT)
        shell.type("\x03")
        shell.expect(PROMPT)
        shell.type("\\q\r")
        assert shell.exit_code() == 0
    assert "INSERT INTO numbers" in (tmp_path / "penstock" / "history").read_text()
