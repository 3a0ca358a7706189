"""The version of this package."""

from __future__ import annotations


def version() -> str:
    """The version as `penstock.__version__` has it."""
    from penstock import __version__

    return __version__
