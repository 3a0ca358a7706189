"""What Spark SQL has no words for."""

from __future__ import annotations


class Unwritable(Exception):
    """A part of a one-shot SELECT that only the plans of views have; its text is a noun."""
