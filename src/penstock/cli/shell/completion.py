"""Completion of the text before the cursor: keywords, object names and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.cli.shell.words import AFTER, CLAUSES, STATEMENTS
from penstock.errors import PenstockError

_NAME_FOLLOWS = frozenset(
    {"FROM", "JOIN", "INTO", "UPDATE", "SUBSCRIBE", "DESCRIBE", "EXTENDED", "TABLE", "STREAM", "VIEW", "SOURCE", "SINK"}
)
_WORD = re.compile(r"[\w`$]+")
_LAST = re.compile(r"([\w`$]*)\Z")


@dataclass(frozen=True)
class Names:
    """The kind and columns of each object in the catalogue."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A completion and its kind."""

    text: str
    kind: str


def candidates(before: str, names: Names) -> list[Candidate]:
    """Completions for the word that ends `before`, best first. Inside a string or comment there are none."""
    if _inside_literal(before):
        return []
    last = _LAST.search(before)
    prefix = last.group(1) if last else ""
    head = before[: len(before) - len(prefix)]
    if head.endswith("."):
        owner = _LAST.search(head[:-1])
        return _matching(prefix, _columns_of(owner.group(1) if owner else "", before, names))
    current = head.rpartition(";")[2]
    words = [w.upper() for w in _WORD.findall(current)]
    if not words:
        return _matching(prefix, (Candidate(w, "statement") for w in STATEMENTS))
    follow = AFTER.get(words[-1])
    if follow is not None:
        return _matching(prefix, (Candidate(w, "keyword") for w in follow))
    objects = [Candidate(n, kind) for n, kind in names.kinds.items()]
    if words[-1] in _NAME_FOLLOWS and not (words[0] == "CREATE" and words[-1] != "FROM" and words[-1] != "JOIN"):
        return _matching(prefix, objects)
    if not prefix:
        return []
    columns = [c for n in _mentioned(before, names) for c in _columns(n, names)]
    return _matching(prefix, [*columns, *objects, *(Candidate(w, "keyword") for w in CLAUSES)])


def _matching(prefix: str, found: Iterator[Candidate] | list[Candidate]) -> list[Candidate]:
    seen: set[str] = set()
    chosen = []
    for candidate in found:
        if candidate.text.lower().startswith(prefix.lower()) and candidate.text not in seen:
            seen.add(candidate.text)
            chosen.append(candidate)
    return chosen


def _columns(name: str, names: Names) -> list[Candidate]:
    return [Candidate(c, f"column of {name}") for c in names.columns.get(name, ())]


def _mentioned(text: str, names: Names) -> list[str]:
    """The known objects that the text mentions; all objects if it mentions none yet."""
    words = {w.lower() for w in _WORD.findall(text)}
    return [n for n in names.columns if n.lower() in words] or list(names.columns)


def _columns_of(owner: str, text: str, names: Names) -> list[Candidate]:
    """Columns of an object, given by name or alias."""
    for name in names.columns:
        if name.lower() == owner.lower():
            return _columns(name, names)
    for name in names.columns:
        if re.search(rf"\b{re.escape(name)}\s+(?:AS\s+)?{re.escape(owner)}\b", text, re.IGNORECASE):
            return _columns(name, names)
    return []


def _inside_literal(text: str) -> bool:
    from penstock.sql.tokens import Script

    try:
        Script(text).tokenize()
    except PenstockError:
        return True
    return text.rpartition("\n")[2].lstrip().startswith("--")
