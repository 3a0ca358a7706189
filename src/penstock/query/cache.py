"""A cache of compiled plans, by their meaning."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from penstock.catalog.objects import Column


@dataclass(frozen=True)
class Facts:
    """The results of Spark's part of a compilation."""

    native: int
    kernel: int
    fallbacks: tuple[str, ...]
    operators: int
    columns: tuple[Column, ...]


class CompilerCache:
    """An LRU cache. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Facts] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def find(self, key: str) -> Facts | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
                self._kept.move_to_end(key)
            return found

    def keep(self, key: str, facts: Facts, limit: int) -> None:
        with self._lock:
            self._kept[key] = facts
            while len(self._kept) > limit:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def hit_rate(self) -> float:
        """Between 0 and 1; 0 before the first compilation."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0
