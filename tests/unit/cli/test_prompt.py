"""The input line, driven by key presses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.shell.completion import Names
from penstock.cli.shell.prompt import history_file, prompt_session, read


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PipeInput]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


def test_enter_runs_only_what_is_complete(keys: PipeInput) -> None:
    keys.send_text("SELECT 1,\r2\r;\r")
    assert prompt_session(Names).prompt() == "SELECT 1,\n2\n;"


def test_a_command_runs_at_once(keys: PipeInput) -> None:
    keys.send_text("\\d\r")
    assert prompt_session(Names).prompt() == "\\d"


def test_ctrl_c_clears_and_ctrl_d_leaves(keys: PipeInput) -> None:
    session = prompt_session(Names)
    keys.send_text("SELECT half\x03")
    with pytest.raises(KeyboardInterrupt):
        session.prompt()
    keys.send_text("\x04")
    with pytest.raises(EOFError):
        session.prompt()


def test_ctrl_c_right_after_enter_cancels_what_was_entered(keys: PipeInput) -> None:
    session = prompt_session(Names)
    keys.send_text("SELECT 1;\rrest\x03FLUSH;\r")
    with pytest.raises(KeyboardInterrupt):
        read(session)
    assert read(session) == "FLUSH;"


def test_history_is_kept_in_a_private_file(keys: PipeInput) -> None:
    keys.send_text("FLUSH;\r")
    prompt_session(Names).prompt()
    assert "FLUSH;" in history_file().read_text()
    assert history_file().stat().st_mode & 0o077 == 0
