"""What a subscription needs to know about its object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.serve.envelope import EmitKind


class Past(NamedTuple):
    """One epoch of an object, read from the log. `input_lsn`: the commit that caused it; None means `lsn`."""

    epoch: int
    lsn: int
    table: pa.Table
    watermark: int | None = None
    input_lsn: int | None = None


Snapshot = Callable[[], tuple[pa.Table, int, int]]
"""Reads the contents with their epoch and LSN. They include everything published before the call."""

History = Callable[[int], Iterator[Past] | None]
"""Returns an iterator over the epochs after a given one, or None if the first of them is no longer retained.

The iterator reads one epoch at a time, in order, and raises PSK-5011 at an epoch that was trimmed meanwhile. It may end early; the caller then requests
another. It never omits an epoch with rows that was published before the call, nor the newest one.
"""

Where = Callable[[pa.Table], pa.Table]
"""Filters the rows of a Z-set."""

EpochAt = Callable[[int], int | str]
"""The newest epoch at or before an LSN, if all of its successors are retained; otherwise the reason why not."""


@dataclass(frozen=True)
class Origin:
    """How to read and present an object. The functions run in the reader's thread, without any lock.

    Without `snapshot`, a resync has no rows and only says where changes continue. Without `history`, a reader that falls behind must resync.
    `head` is an LSN up to which everything has been published. Subscriptions with the same `where_key` have the same condition, which is evaluated
    once for all of them. `names` are the column names that this subscriber uses; none: those of the schema. `title` is shown in place of the
    object's name. `reads` are the objects whose row rules apply to the subscriber; empty for one that sees everything.
    """

    schema: pa.Schema
    snapshot: Snapshot | None = None
    history: History | None = None
    where: Where | None = None
    emit: EmitKind = "changes"
    keys: tuple[str, ...] = ()
    epoch_at: EpochAt | None = None
    head: Callable[[], int] | None = None
    where_key: str | None = None
    names: tuple[str, ...] = ()
    title: str | None = None
    reads: frozenset[int] = frozenset()
    input_at: Callable[[int], int | None] | None = None
    """The input LSN of the commit at an LSN; None if it is no longer known."""
