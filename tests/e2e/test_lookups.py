"""kill -9 while rows are looked up on demand: what was seen of a row never changes, and no row is lost or looked up twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.postgres import PASSWORD, PostgresServer

import penstock

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
ROOT = Path(__file__).parents[2]


def seen_until_killed(folder: Path, url: str, first: int, rows: int) -> dict[int, str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.looking_up", str(folder), url, str(first)],
        stdout=subprocess.PIPE, text=True, env={**ENVIRONMENT, "PG_PASSWORD": PASSWORD}, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lines = [process.stdout.readline().rstrip("\n").split("\t") for _ in range(rows)]
        return {int(n): stamp for n, stamp in lines}
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_an_answer_survives_a_kill(tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PG_PASSWORD", PASSWORD)
    folder = tmp_path / "data"
    seen = seen_until_killed(folder, postgres.url, 0, 20)
    with penstock.open(folder, master="local[2]", config={"spark.heap": "1g"}) as db:
        db.flush()
        got = db.sql("SELECT n, stamp FROM v").fetchall()
        present = sorted(n for (n,) in db.sql("SELECT n FROM s").fetchall())
        assert present == list(range(len(present)))
        assert Counter(n for n, _ in got) == Counter(present)
        answers = dict(got)
        assert None not in answers.values()
        assert {n: answers[n] for n in seen} == seen
        assert [s.error for s in db.status() if s.error] == []
