"""A storage whose contents go to disk after each change, in a process that is killed at a named step. Writes out each commit that was acknowledged."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.runtime.storing import make, part

from penstock.catalog.objects import Kind
from penstock.config import Settings
from penstock.runtime.storage import storage as module
from penstock.runtime.storage.storage import Storage


def main(folder: Path) -> None:
    module.size_of = lambda text: 1
    storage = Storage(folder, Settings())
    for info in storage.catalog.objects():
        storage.attach(info)
    names = {o.name: o for o in storage.catalog.objects()}
    table = names.get("t") or make(storage, "t")
    view = names.get("v") or make(storage, "v", Kind.VIEW)
    for i in range(storage.log.head, storage.log.head + 200):
        replaced = [(i - 7, f"row {i - 7}", -1)] if i >= 7 else []
        storage.commit([part(o, (i, f"row {i}", 1), *replaced) for o in (table, view)])
        sys.stdout.write(f"{i}\n")
        sys.stdout.flush()
        storage.log.trim({o.id: storage.store.saved_lsn(o.id) for o in (table, view)})
        if i % 5 == 0:
            storage.save_contents()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
