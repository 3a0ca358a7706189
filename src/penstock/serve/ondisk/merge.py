"""Merges ordered rows of several ages, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.serve.ondisk.form import Form
from penstock.serve.ondisk.keys import Keys, firsts, least, order, up_to


class _Source:
    """Rows by key, read on demand."""

    def __init__(self, rows: Iterator[pa.Table], form: Form) -> None:
        self._rest = rows
        self._form = form
        self.rows: pa.Table | None = None
        self.keys: Keys = None
        self._more()

    def _more(self) -> None:
        self.rows = next((t for t in self._rest if t.num_rows), None)
        self.keys = self._form.keys_of(self.rows) if self.rows is not None else None

    def take(self, bound: pa.Scalar) -> tuple[pa.Table, Keys] | None:
        """Removes and returns the rows up to a key."""
        assert self.rows is not None
        count = up_to(self.keys, bound)
        if not count:
            return None
        rows, keys = self.rows.slice(0, count), self.keys.slice(0, count)
        if count == self.rows.num_rows:
            self._more()
        else:
            self.rows, self.keys = self.rows.slice(count), self.keys.slice(count)
        return rows, keys


def merged(form: Form, sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merges weighted rows; the newest source is first. Each key occurs once, in order; retractions are kept."""
    left = [s for s in (_Source(rows, form) for rows in sources) if s.rows is not None]
    while left:
        if len(left) == 1:
            [last] = left
            while last.rows is not None:
                found = last.take(last.keys[-1])
                assert found is not None
                yield found[0]
            return
        # All sources have been read at least up to this key.
        bound = least([s.keys[-1] for s in left])
        taken = [t for t in (s.take(bound) for s in left) if t is not None]
        left = [s for s in left if s.rows is not None]
        if len(taken) == 1:
            yield taken[0][0]
            continue
        rows = pa.concat_tables([t for t, _ in taken])
        keys = pa.concat_arrays([k for _, k in taken])
        at = pa.array(order(keys))
        keys = keys.take(at)
        yield form.combined(rows.take(at), keys, firsts(keys))[0]
