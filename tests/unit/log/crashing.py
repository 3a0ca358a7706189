"""A process that appends until it is killed and says which commits were acknowledged.

Every commit N of thread T puts the same key into the objects T and T + 10, so that half a commit can be told. Now and then it puts it into T + 20 as
well, of which nothing is ever trimmed: the segments that only T + 20 needs are thinned out.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tests.unit.log.rows import part

from penstock.log import Log

THREADS = 3
RARE = 20


def main() -> None:
    log = Log.open(Path(sys.argv[1]), segment_bytes=64 << 10)

    def run(thread: int) -> None:
        key = log.epoch(thread)
        while True:
            rare = [part(thread + 20, key)] if key % RARE == 0 else []
            commit = log.append([part(thread, key, watermark=key), part(thread + 10, key, width=3000), *rare])
            # One write of a short line is whole even if the process dies next.
            os.write(1, f"{thread} {key} {commit.lsn}\n".encode())
            if key % 10 == 9:
                log.trim({thread: commit.lsn - 60, thread + 10: commit.lsn - 60})
            key += 1

    os.write(1, b"open\n")
    threads = [threading.Thread(target=run, args=(t,)) for t in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
