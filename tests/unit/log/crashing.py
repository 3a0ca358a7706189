"""A process that appends until it is killed and says which commits were acknowledged.

Every commit N of thread T puts the same key into the objects T and T + 10, so that half a commit can be told.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tests.unit.log.rows import part

from penstock.log import Log

THREADS = 3


def main() -> None:
    log = Log.open(Path(sys.argv[1]), segment_bytes=16 << 10)

    def run(thread: int) -> None:
        key = log.epoch(thread)
        while True:
            lsn = log.append([part(thread, key, watermark=key), part(thread + 10, key)])
            # One write of a short line is whole even if the process dies next.
            os.write(1, f"{thread} {key} {lsn}\n".encode())
            if key % 50 == 49:
                log.trim({thread: lsn - 60, thread + 10: lsn - 60})
            key += 1

    os.write(1, b"open\n")
    threads = [threading.Thread(target=run, args=(t,)) for t in range(THREADS)]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main()
