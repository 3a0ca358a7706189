"""A market-data pipeline to watch in a terminal."""

from __future__ import annotations

from penstock.cli.demo.command import run_demo

__all__ = ["run_demo"]
