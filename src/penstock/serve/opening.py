"""Finds where in an object's timeline a subscription starts."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import fail
from penstock.serve.message import Message, Point
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin
from penstock.serve.replay import Replay, Sums, point_of
from penstock.serve.zset import assertions, consolidate, negated, weighted

_UNDO_BYTES = 64 << 20


@dataclass(frozen=True)
class Opening:
    """The reader delivers `contents`, then continues after `epoch` and `lsn`. `lost`: why it must resync first."""

    epoch: int
    lsn: int
    contents: Message | None = None
    lost: str | None = None


def opening(name: str, origin: Origin, options: SubscribeOptions, now: Point) -> Opening:
    """Reads the starting point that the options request. `now` is the newest point published before the call."""
    if options.as_of_lsn is not None:
        return _after_lsn(origin, options.as_of_lsn, options.snapshot, now)
    as_of = options.as_of
    if as_of is not None and as_of > now.epoch + 1:
        raise fail("PSK-5011", f"Epoch {as_of} is still to come; the newest is {now.epoch}.", hint="Leave AS OF out.")
    if options.snapshot:
        return _from_contents(origin, now, as_of)
    before = now.epoch if as_of is None else max(as_of - 1, 0)
    if as_of is None or before == now.epoch:
        return Opening(now.epoch, now.lsn)
    point = _point_at(Replay(origin.history), before)
    if point is not None:
        return Opening(before, point.lsn)
    if origin.snapshot is None:
        raise fail("PSK-5011", f"Epoch {as_of} of {name} is no longer retained.")
    return Opening(now.epoch, now.lsn, lost=_gone(as_of))


def _after_lsn(origin: Origin, lsn: int, snapshot: bool, now: Point) -> Opening:
    found = "LSNs are unknown here" if origin.epoch_at is None else origin.epoch_at(lsn)
    if isinstance(found, str):
        if origin.snapshot is None:
            raise fail("PSK-5011", f"LSN {lsn} cannot be continued from: {found}.")
        return Opening(now.epoch, now.lsn, lost=found)
    return _from_contents(origin, now, found) if snapshot else Opening(found, lsn)


def read_contents(origin: Origin, now: Point) -> Message:
    """The current contents, or no rows at `now` if the object offers no snapshot."""
    if origin.snapshot is None:
        return Message(now, 0, origin.schema.empty_table())
    table, epoch, lsn = origin.snapshot()
    input_lsn = origin.input_at(lsn) if origin.input_at is not None else None
    if input_lsn is None:
        # Contents may be ahead of the hub. The newest published input LSN is then a lower bound for theirs.
        input_lsn = lsn if now.input_lsn == now.lsn else min(lsn, now.input_lsn)
    return Message(Point(epoch, lsn, input_lsn), 0, table)


def _from_contents(origin: Origin, now: Point, as_of: int | None) -> Opening:
    # Read the contents first: the log is ahead of them, so it has every change that must be undone.
    contents = read_contents(origin, now)
    if as_of is None or as_of >= contents.epoch:
        return Opening(max(contents.epoch, now.epoch), contents.point.lsn, contents)
    replay = Replay(origin.history)
    point = _point_at(replay, as_of)
    table = _undone(replay, contents, as_of) if point is not None else None
    if point is None or table is None:
        return Opening(now.epoch, now.lsn, lost=_gone(as_of))
    return Opening(as_of, point.lsn, Message(point, 0, table))


def _undone(replay: Replay, contents: Message, epoch: int) -> pa.Table | None:
    """The contents rolled back to an earlier epoch; None if the changes since then are no longer retained."""
    sums = Sums(_UNDO_BYTES)
    sums.add(contents.table.slice(0, 0))
    while epoch < contents.epoch:
        past = replay.after(epoch)
        if past is None:
            return None
        if past.epoch <= contents.epoch:
            sums.add(negated(past.table))
        epoch = past.epoch
    return assertions(consolidate(pa.concat_tables([weighted(contents.table), sums.total()])))


def _point_at(replay: Replay, epoch: int) -> Point | None:
    """The end of an epoch that is not the newest; None if the next epoch is no longer retained."""
    if epoch > 0:
        past = replay.after(epoch - 1)
        if past is not None and past.epoch == epoch:
            return point_of(past)
    past = replay.after(epoch)
    if past is None:
        return None
    # The epoch itself is gone, but it lasted until the next one. Its input LSN is known only if the object is its own input, as a table is.
    lsn = past.lsn - 1 if epoch else 0
    return Point(epoch, lsn, lsn if past.input_lsn in (None, past.lsn) else 0)


def _gone(epoch: int) -> str:
    return f"epoch {epoch} is no longer retained"
