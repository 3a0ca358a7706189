"""What is not shown of a statement."""

from __future__ import annotations

import re

_HIDDEN = "***"
_IN_URL = re.compile(r"(://[^\s:/@']*:)([^@/']+)(@)")
_OPTION = re.compile(r"""(\b(?:password|secret|token|api_key)\b["'`]?\s*=\s*')((?:[^']|'')*)(')""", re.IGNORECASE)


def masked(sql: str) -> str:
    """A statement without the passwords that were written into it. References such as `${NAME}` stay: they tell nothing."""
    return _OPTION.sub(_mask, _IN_URL.sub(_mask, sql))


def _mask(found: re.Match[str]) -> str:
    reference = found[2].startswith("${") and found[2].endswith("}")
    return found[0] if reference else f"{found[1]}{_HIDDEN}{found[3]}"
