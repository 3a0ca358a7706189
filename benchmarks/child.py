"""One competitor's part of one work, in a process of its own: `python -m benchmarks.child window spark [--quick]`."""

from __future__ import annotations

import json
import os
import sys

RESULT = "RESULT "
FAILURE = "FAILURE "


def main(arguments: list[str]) -> None:
    # Before any import that could print: what the parent reads must be the only thing on this channel.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from benchmarks.work import Partly
    from benchmarks.works import WORKS

    name, competitor = arguments[:2]
    work = next(w for w in WORKS if w.name == name)
    try:
        figures = work.programs[competitor]("--quick" in arguments)
    except Partly as some:
        figures = some.figures
        print(FAILURE + json.dumps(str(some)), file=channel)
    print(RESULT + json.dumps(figures), file=channel, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
