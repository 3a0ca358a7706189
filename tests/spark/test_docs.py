"""Runs the code blocks of the documentation.

In README.md and docs, every block marked `python` is run unchanged, and every block marked `sql` against a temporary
database, one for each page. A block after the comment `<!-- not run -->` is only shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import settle

import penstock

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n(?P<indent> *)```(?P<language>python|sql)\n(?P<text>.*?)\n *```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    out = []
    for found in BLOCK.finditer(text):
        if "<!-- not run -->" in _before(text, found.start("indent")):
            continue
        line = text[: found.start("text")].count("\n") + 1
        out.append(Block(page, line, found["language"], found["text"]))
    return out


def _before(text: str, at: int) -> str:
    return text[:at].rstrip().rpartition("\n")[2]


PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if blocks(p)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_page(page: Path, opener: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    plain = penstock.open

    def in_this_session(path: object = None, **options: object) -> penstock.Database:
        # All databases of a process share its Spark session, and this one's is small.
        options.setdefault("master", "local[2]")
        return plain(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(penstock, "open", in_this_session)
    db: penstock.Database | None = None
    ran = 0
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), {"__name__": where})
        else:
            db = db or opener()
            db.execute(block.text)
            settle(db)
        ran += 1
    # A block that fails raises; a page whose blocks are not found would pass.
    assert ran == len(blocks(page)) > 0


def test_the_readme_shows_the_result_that_it_promises(
    opener: Opener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = penstock.open
    monkeypatch.setattr(penstock, "open", lambda *a, **o: plain(*a, **{"master": "local[2]", **o}))
    block = next(b for b in blocks(ROOT / "README.md") if "vwap" in b.text)
    exec(compile(block.text, "README.md", "exec"), {"__name__": "readme"})
    shown = capsys.readouterr().out
    assert re.search(r"ACME .* 10\.5 ", shown) and re.search(r"ZINC .* 7\.5 ", shown)
    assert "2 rows" in shown
