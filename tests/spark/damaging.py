"""A database with every kind of file, ways to damage one of them, and what must be true afterwards: each object has the right rows or is refused."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.spark.conftest import MASTER

import penstock
from penstock import Database, PenstockError

SCRIPT = """
CREATE SOURCE s (k BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);
INSERT INTO t VALUES (1, 10), (2, 20);
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW windows AS
  SELECT window_start, count(*) AS n, sum(v) AS total FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW paced AS SELECT k, max(v) AS most FROM s GROUP BY k EMIT EVERY INTERVAL '20' MILLISECOND;
CREATE STREAM even AS SELECT v FROM s WHERE v % 2 = 0;
CREATE MATERIALIZED VIEW joined AS SELECT s.v, t.v AS w FROM s JOIN t ON s.k = t.k;
"""

EARLIER = "earlier"

VIEWS = ("sums", "windows", "paced", "even", "joined", "t")


def rows(first: int, last: int) -> list[tuple[int, int, int]]:
    return [(n % 3, n, n * 100) for n in range(first, last)]


def expected(last: int, name: str) -> Counter[tuple[Any, ...]]:
    """What an object has when the rows up to `last` are processed."""
    all_rows = rows(0, last)
    if name == "t":
        return Counter([(1, 10), (2, 20)])
    if name == "even":
        return Counter((v,) for _, v, _ in all_rows if v % 2 == 0)
    if name == "joined":
        return Counter((v, 10 * k) for k, v, _ in all_rows if k in (1, 2))
    if name == "sums":
        keys = sorted({k for k, _, _ in all_rows})
        return Counter(
            (k, sum(1 for r in all_rows if r[0] == k), sum(v for j, v, _ in all_rows if j == k)) for k in keys
        )
    if name == "paced":
        return Counter((key, max(v for k, v, _ in all_rows if k == key)) for key in {k for k, _, _ in all_rows})
    watermark = all_rows[-1][2] - 1000
    starts = sorted({ts // 1000 * 1000 for _, _, ts in all_rows if ts // 1000 * 1000 + 1000 <= watermark})
    of = {start: [v for _, v, ts in all_rows if ts // 1000 * 1000 == start] for start in starts}
    return Counter((start, len(vs), sum(vs)) for start, vs in of.items())


def delivered(folder: Path) -> Counter[int]:
    """The rows in the files of a sink."""
    return Counter(json.loads(line)["v"] for f in sorted(folder.glob("*.json")) for line in f.read_text().splitlines())


def build(folder: Path, out: Path, **config: Any) -> int:
    """Makes the database in two lives, with a checkpoint in the first; returns the number of rows. `EARLIER`, beside it, is how it was after the first."""
    config = {"checkpoint.interval_ms": 0} | config
    with penstock.open(folder, master=MASTER, config=config) as db:
        db.execute(SCRIPT)
        db.execute(f"CREATE SINK files FROM even INTO FILES (path = '{out}', format = 'json')")
        for first in (0, 20):
            db.source("s").insert(rows(first, first + 20))
            db.flush()
        db.execute("CHECKPOINT")
        db.source("s").insert(rows(40, 60))
        db.flush()
    shutil.copytree(folder, folder.with_name(EARLIER))
    with penstock.open(folder, master=MASTER, config=config) as db:
        db.execute("CREATE TABLE later (k BIGINT PRIMARY KEY); INSERT INTO later VALUES (1)")
        for first in (60, 70):
            db.source("s").insert(rows(first, first + 10))
            db.flush()
    return 80


def check(db: Database, out: Path, count: int) -> dict[str, str]:
    """Inserts more rows and compares everything; returns the codes of what is refused."""
    refused: dict[str, str] = {}
    try:
        db.source("s").insert(rows(count, count + 10))
        count += 10
    except PenstockError as error:
        refused["s"] = error.code
    try:
        db.flush(timeout=60)
    except PenstockError as error:
        refused["flush"] = error.code
    for name in VIEWS:
        try:
            found = Counter(db.sql(f"SELECT * FROM {name}").fetchall())
        except PenstockError as error:
            refused[name] = error.code
            continue
        assert found == expected(count, name), (name, found - expected(count, name), expected(count, name) - found)
    sink = delivered(out)
    wanted = Counter(v for (v,) in expected(count, "even"))
    assert max(sink.values(), default=0) <= 1 and set(sink) <= set(wanted), "the sink has rows twice, or wrong ones"
    if not refused:
        assert sink == wanted
    return refused


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10])


def cut_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def flip_end(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[-1] ^= 1
    path.write_bytes(data)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "empty": empty,
    "cut": cut,
    "cut short": cut_short,
    "cut at the end": cut_end,
    "flipped": flip,
    "flipped at the end": flip_end,
    "zeros": zeros,
}


def kinds(folder: Path) -> dict[str, list[Path]]:
    """The files of a database, by what they are."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.setdefault(kind(path.relative_to(folder)), []).append(path)
    return found


def kind(path: Path) -> str:
    parts = ["N" if part.split(".")[0].split("_")[0].lstrip("-").isdecimal() else part for part in path.parts]
    if path.parts[0] == "jobs" and path.parts[1].startswith("hosted-"):
        parts[1] = "keyed" if not path.parts[1].startswith("hosted-s") else "plain"
    if path.suffix in (".changelog", ".zip", ".sst", ".crc", ".seg", ".arrow") and parts[-1] == "N":
        parts[-1] = f"N{path.suffix}"
    elif path.suffix in (".sst", ".crc", ".arrow"):
        parts[-1] = f"*{path.suffix}"
    return "/".join(parts)


def without_last_epoch(folder: Path) -> None:
    """Removes the last offsets and commits of a query."""
    for what in ("offsets", "commits"):
        files = [f for f in folder.glob(f"jobs/*/checkpoint/{what}/*") if f.name.isdecimal()]
        max(files, key=lambda f: int(f.name)).unlink()


def without_checkpoints(folder: Path) -> None:
    for checkpoint in folder.glob("jobs/**/checkpoint"):
        shutil.rmtree(checkpoint)


def power_cut(folder: Path, chance: random.Random) -> None:
    """What a power cut may leave of a folder: of files that nobody has synced nothing, a part, or an earlier one. Witnesses may be behind."""
    losses: list[Callable[[Path], object]] = [lambda path: None, empty, cut, zeros, Path.unlink]
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        synced = path.name in ("seeds.json", "sealed", "position.json") or path.suffix == ".arrow"
        if path.name in ("head", "delivered", "catalog.serial") and chance.random() < 0.5:
            path.unlink()
        elif name.parts[0] == "jobs" and not synced and path.name != "delivered":
            chance.choice(losses)(path)


def damages(folder: Path) -> Iterator[tuple[str, Path, str, Callable[[Path], object]]]:
    """Each kind of file with each kind of damage, at its newest file; and as it was in the first life, if it was another then."""
    for what, paths in kinds(folder).items():
        for how, damage in DAMAGES.items():
            yield what, paths[-1], how, damage
        for path in reversed(paths):
            before = folder.with_name(EARLIER) / path.relative_to(folder)
            if before.is_file() and before.read_bytes() != path.read_bytes():
                yield what, path, "as it was earlier", partial(shutil.copyfile, before)
                break
