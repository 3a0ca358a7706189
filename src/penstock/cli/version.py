"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The version, or `unreleased` when the package runs from a source tree that is not installed."""
    try:
        return installed("penstock")
    except PackageNotFoundError:
        return "unreleased"
