"""The figures of the last full run of each work, kept with the sources, and the table of them in the documentation.

`python -m benchmarks.figures` writes the table; `python -m benchmarks` does so after a run at full size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import Samples
from benchmarks.summary import Line, Value, line, number
from benchmarks.work import TITLES, Work
from benchmarks.works import WORKS

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "figures.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- Made by benchmarks/figures.py from benchmarks/results/figures.json. -->"
END = "<!-- End of the figures. -->"

Kept = dict[str, dict[str, Any]]
"""By work: when and where it was run, its samples, and what was missing."""


def read(path: Path = KEPT) -> Kept:
    kept: Kept = json.loads(path.read_text()) if path.exists() else {}
    return kept


def keep(work: Work, samples: Samples, missing: Mapping[str, str], run: Mapping[str, Any], path: Path = KEPT) -> None:
    """Replaces the figures of one work; those of others stay."""
    kept = read(path)
    kept[work.name] = {**run, "missing": dict(missing), "samples": samples}
    order = [w.name for w in WORKS]
    path.parent.mkdir(parents=True, exist_ok=True)
    sorted_ = dict(sorted(kept.items(), key=lambda item: order.index(item[0])))
    path.write_text(json.dumps(sorted_, indent=1, ensure_ascii=False) + "\n")


def lines_of(work: Work, samples: Samples, missing: Mapping[str, str]) -> list[Line]:
    """The rows of a work."""
    lines = []
    for row in work.rows:
        by_competitor = {who: figures[row.figure] for who, figures in samples.items() if row.figure in figures}
        lines.append(line(work.name, row, by_competitor, missing))
    return lines


def table(kept: Kept) -> str:
    """The figures as Markdown."""
    known = {w.name: w for w in WORKS}
    lines = {name: lines_of(known[name], of["samples"], of["missing"]) for name, of in kept.items() if name in known}
    every = [one for of_work in lines.values() for one in of_work]
    competitors = [c for c in TITLES if any(c in one.values for one in every)]
    head = ["what", *(TITLES[c] for c in competitors), "bar", "met", "measured"]
    rows = [head, ["---"] * len(head)]
    for name, of_work in lines.items():
        for one in of_work:
            cells = [_cell(one, c) for c in competitors]
            if not any(cells):
                continue
            bars = "; ".join(j.bar for j in one.judged)
            met = "; ".join(_judged(j.ratio, j.met) for j in one.judged)
            rows.append([f"`{name}`: {one.row.title}", *cells, bars, met, _measured(kept[name])])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _cell(one: Line, competitor: str) -> str:
    value = one.values.get(competitor)
    if value is None:
        return "cannot" if competitor in one.row.refused else ""
    return _spread(value, one)


def _spread(value: Value, one: Line) -> str:
    text = f"{number(value.median, one.row)} {one.row.unit}".strip()
    if value.low == value.high:
        return text
    return f"{text} ({number(value.low, one.row)} – {number(value.high, one.row)})"


def _judged(ratio: float | None, met: bool | None) -> str:
    said = {True: "yes", False: "**no**", None: "?"}[met]
    return said if ratio is None else f"{said}, {ratio:.2f} ×"


def _measured(run: Mapping[str, Any]) -> str:
    return f"{run['when'][:10]}, load {run['load_before']:g}"


def page(text: str, kept: Kept) -> str:
    """The documentation with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE.name} has no place for the figures")
    return f"{before}{BEGIN}\n\n{table(kept)}\n\n{END}{after}"


def write_page() -> None:
    PAGE.write_text(page(PAGE.read_text(), read()))


if __name__ == "__main__":
    write_page()
