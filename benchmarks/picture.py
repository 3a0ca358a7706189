"""The results as a picture: one panel for each row that has a bar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.summary import SCALES, Line, number
from benchmarks.work import DUCKDB, FLINK, LAMINAR, PENSTOCK, SPARK, TITLES, Against, AtMost

COLOURS = {PENSTOCK: "#1f6f8b", SPARK: "#e0803a", FLINK: "#b8478d", LAMINAR: "#8a8f98", DUCKDB: "#c9b458"}
COLUMNS = 3


def draw(path: Path, lines: Sequence[Line], *, note: str) -> None:
    shown = [line for line in lines if line.row.bars and line.values]
    if not shown:
        return
    height = -(-len(shown) // COLUMNS)
    figure, grid = plt.subplots(height, COLUMNS, figsize=(13, 1.9 * height + 0.6), squeeze=False)
    panels = [panel for row in grid for panel in row]
    for panel, line in zip(panels, shown, strict=False):
        _panel(panel, line)
    for panel in panels[len(shown) :]:
        panel.axis("off")
    figure.text(0.01, 0.005, note, fontsize=8, color="#555555")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(panel: Axes, line: Line) -> None:
    scale = SCALES.get(line.row.unit, 1.0)
    who = [c for c in TITLES if c in line.values][::-1]
    values = [line.values[c] for c in who]
    medians = [v.median / scale for v in values]
    spread = [[(v.median - v.low) / scale for v in values], [(v.high - v.median) / scale for v in values]]
    panel.barh(
        [TITLES[c] for c in who],
        medians,
        xerr=spread,
        color=[COLOURS[c] for c in who],
        height=0.55,
        ecolor="#333333",
        capsize=2,
    )
    for at, (median, value) in enumerate(zip(medians, values, strict=True)):
        panel.annotate(
            f" {number(value.median, line.row)}", (median, at), xytext=(0, 9), textcoords="offset points", fontsize=8
        )
    for bar in line.row.bars:
        limit = None if isinstance(bar, Against) else bar.value
        if isinstance(bar, Against) and bar.competitor in line.values:
            limit = bar.factor * line.values[bar.competitor].median
        if limit is not None:
            panel.axvline(limit / scale, color="#c0392b", linewidth=1, linestyle="--")
    arrow = "←" if line.row.better == "less" or any(isinstance(b, AtMost) for b in line.row.bars) else "→"
    panel.set_title(f"{line.row.title} ({line.row.unit} {arrow})", fontsize=9, loc="left")
    panel.margins(x=0.15)
    panel.set_ylim(-0.7, max(len(who), 2) - 0.3)
    panel.set_xlim(left=0)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
