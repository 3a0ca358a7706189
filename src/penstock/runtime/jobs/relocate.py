"""A database folder can be moved, copied and restored elsewhere; Spark writes absolute paths into a checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.disk import write_durably

_PLACE = re.compile(rb'file:[^"]*?/checkpoint/state/')


def relocate(job: Path) -> None:
    """Makes the paths in the state metadata of a job's checkpoint those of the folder that it is in now."""
    here = b"file:" + str(job / "checkpoint" / "state").encode() + b"/"
    for path in job.glob("checkpoint/state/*/_metadata/v2/*"):
        before = path.read_bytes()
        after = _PLACE.sub(lambda _: here, before)
        if after != before:
            write_durably(path, after)
