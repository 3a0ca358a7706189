"""`${NAME}` and `${NAME:-default}` in option values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from penstock.errors import Position, fail

_OPENING = re.compile(r"\$\{")
REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<fallback>:-(?P<default>[^}]*))?\}")


def substitute(text: str, variables: Mapping[str, str], *, position: Position | None = None) -> str:
    """`text` with every reference replaced, from `variables` first and then from the environment.

    As in a shell, `${NAME:-default}` gives the default where NAME is unset or empty. What was put in is not looked
    into again. A reference without a value, or one that is not well formed, is refused (PSK-0003).
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        found = variables[name] if name in variables else os.environ.get(name)
        if match["fallback"] is not None:
            return found or match["default"]
        if found is None:
            raise fail("PSK-0003", f"The variable {name!r} has no value.", position=position)
        return found

    done: list[str] = []
    start = 0
    for opening in _OPENING.finditer(text):
        if opening.start() < start:
            continue
        reference = REFERENCE.match(text, opening.start())
        if reference is None:
            raise fail(
                "PSK-0003",
                # No more of the text: what follows may be a secret.
                f"{text[opening.start() : opening.start() + 12]!r} does not begin with a variable reference.",
                hint="Write ${NAME} or ${NAME:-default}; a name has letters, digits and underscores.",
                position=position,
            )
        done += (text[start : opening.start()], value(reference))
        start = reference.end()
    return "".join((*done, text[start:]))
