"""The version of this package."""

from __future__ import annotations


def version() -> str:
    """The same as `penstock.__version__`."""
    from penstock import __version__

    return __version__
