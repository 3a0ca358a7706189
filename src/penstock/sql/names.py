"""The nearest known name, for hints."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    by_lower = {k.lower(): k for k in known}
    match = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[match[0]] if match else None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """`Did you mean x?`, or the known names if there are few, or nothing."""
    names = list(known)
    best = nearest(name, names)
    if best is not None:
        return f"Did you mean {best}?"
    if 0 < len(names) <= 12:
        return f"Known: {', '.join(sorted(names))}."
    return None
