"""The options of a subscriber."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.config import SubscribeSettings
from penstock.errors import fail
from penstock.serve.envelope import EnvelopeKind

Policy = Literal["block", "coalesce", "latest", "resync", "disconnect"]

_DEFAULT = SubscribeSettings()
_NUMBERS = (
    ("as_of", 0),
    ("up_to", 0),
    ("as_of_lsn", 0),
    ("up_to_lsn", 0),
    ("buffer_bytes", 1),
    ("buffer_messages", 1),
)


@dataclass(frozen=True)
class Limits:
    """How much is queued in memory for a slow subscriber, and what happens when the queue is full. Publishers never wait for a subscriber.

    block: nothing is lost. The queue is kept; after reading it, the subscriber continues from the retained log, one message per
    epoch, until it has caught up. If the log is no longer retained, as `resync`.
    coalesce: the queue is dropped. The subscriber reads the missed epochs from the retained log, as one message with the net changes, or as
    several if one would exceed `bytes`. If the log is no longer retained, as `resync`.
    latest: only the newest message is queued; `prev_lsn` shows the gap.
    resync: the queue is dropped. The subscriber gets a `resync` message with the current contents.
    disconnect: the subscription fails with PSK-5010.

    An empty queue accepts one message of any size.
    """

    policy: Policy = "block"
    bytes: int = _DEFAULT.buffer_bytes
    messages: int = _DEFAULT.buffer_messages


@dataclass(frozen=True)
class SubscribeOptions:
    """`snapshot`: start with the contents. `as_of`, `up_to`: the first and the last epoch. `as_of_lsn`: continue after that LSN, that of
    the last message seen; with `snapshot`, the contents as of it come first. `up_to_lsn`: end when the log has passed that LSN. `where`:
    a condition in SQL. `progress`: also send messages when nothing changed. `policy`, `buffer_bytes`, `buffer_messages`: see `Limits`;
    None is the default size. `name`: shown in SHOW SUBSCRIPTIONS.
    """

    snapshot: bool = False
    as_of: int | None = None
    up_to: int | None = None
    where: str | None = None
    envelope: EnvelopeKind = "diff"
    progress: bool = False
    policy: Policy = "block"
    buffer_bytes: int | None = None
    buffer_messages: int | None = None
    as_of_lsn: int | None = None
    up_to_lsn: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _one_of("policy", self.policy, get_args(Policy))
        _one_of("envelope", self.envelope, get_args(EnvelopeKind))
        for name, least in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise fail("PSK-1011", f"{name} = {value!r} is not a number of at least {least}.")
        if self.as_of is not None and self.up_to is not None and self.up_to < self.as_of:
            raise fail("PSK-1011", f"Epoch {self.up_to} (up_to) is before epoch {self.as_of} (as_of).")
        if self.as_of_lsn is not None and self.up_to_lsn is not None and self.up_to_lsn < self.as_of_lsn:
            raise fail("PSK-1011", f"LSN {self.up_to_lsn} (up_to_lsn) is before LSN {self.as_of_lsn} (as_of_lsn).")
        for epoch, lsn in (("as_of", "as_of_lsn"), ("up_to", "up_to_lsn")):
            if getattr(self, epoch) is not None and getattr(self, lsn) is not None:
                raise fail("PSK-1011", f"{epoch} and {lsn} were both given.", hint="Name an epoch or an LSN.")

    @property
    def limits(self) -> Limits:
        return Limits(
            self.policy,
            _DEFAULT.buffer_bytes if self.buffer_bytes is None else self.buffer_bytes,
            _DEFAULT.buffer_messages if self.buffer_messages is None else self.buffer_messages,
        )


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise fail("PSK-1011", f"{value!r} is not a valid {name}.", hint=f"Use {', '.join(known[:-1])} or {known[-1]}.")
