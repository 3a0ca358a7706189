"""The interactive shell."""

from __future__ import annotations

from penstock.cli.shell.loop import run_shell

__all__ = ["run_shell"]
