"""Persons, auctions and bids, in the proportion 1 : 3 : 46, the same rows in every run and on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.nexmark.chance import Ints, below, unit

# In the past, so that no row is taken for one from the future.
START_US = 1_700_000_000_000_000
TIME = pa.timestamp("us", tz="UTC")

ROUND = 50
"""Events come in rounds of one person, three auctions and 46 bids."""
PERSONS, AUCTIONS = 1, 3
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, ACTIVE_AUCTIONS = 1000, 100
HOT = 100
"""One id in so many is hot: half of the bids and three quarters of the bidders and sellers are."""
OTHER_CHANNELS = 10_000

FIRST_NAMES = ["Ada", "Ben", "Cem", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kaya"]
LAST_NAMES = ["Abel", "Brandt", "Cole", "Diaz", "Endo", "Frost", "Grant", "Haas", "Ito"]
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
ITEMS = ["lamp", "chair", "book", "clock", "camera", "guitar", "bicycle", "painting", "carpet", "mirror"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Events:
    """The rows of one stretch of the event sequence; each table holds them in order of arrival."""

    person: pa.RecordBatch
    auction: pa.RecordBatch
    bid: pa.RecordBatch

    def items(self) -> tuple[tuple[str, pa.RecordBatch], ...]:
        """(source, rows), people first: an auction refers to its seller and a bid to its auction."""
        return ("person", self.person), ("auction", self.auction), ("bid", self.bid)


@dataclass(frozen=True)
class Nexmark:
    """Events numbered from 0, `per_second` in a second of event time, so that no two have the same time.

    `disorder`: within blocks of so many events they arrive in another order than that of their times.
    """

    seed: int = 0
    per_second: int = 10_000
    disorder: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= 1_000_000:
            raise ValueError("per_second is between 1 and 1,000,000: times are whole microseconds")

    def batches(self, events: int, batch: int = 100_000) -> Iterator[Events]:
        """The first `events` events, `batch` at a time."""
        for first in range(0, events, batch):
            yield self.events(first, min(first + batch, events))

    def events(self, first: int, end: int) -> Events:
        """The events that arrive at places `first` to `end` - 1; how a sequence is cut changes no row."""
        numbers = self._numbers(first, end)
        place = numbers % ROUND
        return Events(
            person=self._persons(numbers[place < PERSONS]),
            auction=self._auctions(numbers[(place >= PERSONS) & (place < PERSONS + AUCTIONS)]),
            bid=self._bids(numbers[place >= PERSONS + AUCTIONS]),
        )

    def time_us(self, number: int) -> int:
        """The event time of an event, in microseconds since the epoch."""
        return START_US + number * 1_000_000 // self.per_second

    def _numbers(self, first: int, end: int) -> Ints:
        places = np.arange(first, end, dtype=np.int64)
        if self.disorder <= 1:
            return places
        block = self.disorder
        # A prime that does not divide the length of the block moves every place of it to another one.
        step = next(p for p in (7919, 7927, 7933) if block % p)
        return places - places % block + places % block * step % block

    def _persons(self, numbers: Ints) -> pa.RecordBatch:
        ids = numbers // ROUND
        first = below(ids, self.seed, 1, len(FIRST_NAMES))
        last = below(ids, self.seed, 2, len(LAST_NAMES))
        names = [f"{a} {b}" for a in FIRST_NAMES for b in LAST_NAMES]
        mails = [f"{name.lower().replace(' ', '.')}@example.com" for name in names]
        named = first * len(LAST_NAMES) + last
        card = below(ids, self.seed, 3, 10**16)
        return pa.record_batch(
            {
                "id": FIRST_ID + ids,
                "name": _pick(names, named),
                "email_address": _pick(mails, named),
                "credit_card": pa.array([f"{c:016d}" for c in card.tolist()], pa.string()),
                "city": _pick(CITIES, below(ids, self.seed, 4, len(CITIES))),
                "state": _pick(STATES, below(ids, self.seed, 5, len(STATES))),
                "date_time": self._times(numbers),
                "extra": self._extra(numbers, 6),
            }
        )

    def _auctions(self, numbers: Ints) -> pa.RecordBatch:
        rounds, place = numbers // ROUND, numbers % ROUND
        ids = rounds * AUCTIONS + place - PERSONS
        initial = self._prices(ids, 11)
        # An auction is open for the time in which about twice as many others begin as are active at once.
        span = max(1, 2 * ACTIVE_AUCTIONS * ROUND // AUCTIONS * 1_000_000 // self.per_second)
        times = self._micros(numbers)
        kinds = below(ids, self.seed, 13, len(ITEMS))
        return pa.record_batch(
            {
                "id": FIRST_ID + ids,
                "item_name": _pick(ITEMS, kinds),
                "description": _pick([f"a good {item}" for item in ITEMS], kinds),
                "initial_bid": initial,
                "reserve": initial + self._prices(ids, 12),
                "date_time": _time_array(times),
                "expires": _time_array(times + 1 + below(ids, self.seed, 14, span)),
                "seller": FIRST_ID + self._person_of(rounds + 1, ids, 15),
                "category": FIRST_CATEGORY + below(ids, self.seed, 17, CATEGORIES),
                "extra": self._extra(numbers, 18),
            }
        )

    def _bids(self, numbers: Ints) -> pa.RecordBatch:
        rounds, place = numbers // ROUND, numbers % ROUND
        ids = rounds * (ROUND - PERSONS - AUCTIONS) + place - PERSONS - AUCTIONS
        auctions = (rounds + 1) * AUCTIONS
        active = np.minimum(auctions, ACTIVE_AUCTIONS)
        fresh = auctions - 1 - below(ids, self.seed, 21, active)
        auction = np.where(unit(ids, self.seed, 22) < 0.5, (auctions - 1) // HOT * HOT, fresh)
        hot = len(HOT_CHANNELS)
        other = hot + below(ids, self.seed, 24, OTHER_CHANNELS)
        channel = np.where(unit(ids, self.seed, 25) < 0.5, below(ids, self.seed, 26, hot), other)
        return pa.record_batch(
            {
                "auction": FIRST_ID + auction,
                "bidder": FIRST_ID + self._person_of(rounds + 1, ids, 27),
                "price": self._prices(ids, 29),
                "channel": _CHANNELS.take(pa.array(channel)),
                "url": _URLS.take(pa.array(channel)),
                "date_time": self._times(numbers),
                "extra": self._extra(numbers, 30),
            }
        )

    def _person_of(self, persons: Ints, ids: Ints, field: int) -> Ints:
        """Someone who is there already, mostly the one hot person of the moment."""
        active = np.minimum(persons, ACTIVE_PERSONS)
        some = persons - 1 - below(ids, self.seed, field, active)
        return np.where(unit(ids, self.seed, field + 1) < 0.75, (persons - 1) // HOT * HOT, some)

    def _prices(self, ids: Ints, field: int) -> Ints:
        """From 100 to 100 million, each order of magnitude as likely as the next."""
        return np.rint(100.0 * 10.0 ** (6.0 * unit(ids, self.seed, field))).astype(np.int64)

    def _extra(self, numbers: Ints, field: int) -> pa.Array:
        return _EXTRAS.take(pa.array(below(numbers, self.seed, field, len(_EXTRAS))))

    def _micros(self, numbers: Ints) -> Ints:
        return START_US + numbers * 1_000_000 // self.per_second

    def _times(self, numbers: Ints) -> pa.Array:
        return _time_array(self._micros(numbers))


def _time_array(micros: Ints) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(TIME)


def _pick(words: list[str], which: Ints) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(which))


def _channel_urls() -> tuple[pa.Array, pa.Array]:
    """Of the channels that are not hot, nine in ten have their number in the URL."""
    channels = [*HOT_CHANNELS, *(f"channel-{i}" for i in range(OTHER_CHANNELS))]
    numbers = np.arange(len(channels), dtype=np.int64)
    parts = [below(numbers, 0, 40 + i, len(LETTERS) ** 3).tolist() for i in range(3)]
    urls = []
    for number in range(len(channels)):
        path = "/".join(_word(part[number]) for part in parts)
        other = number >= len(HOT_CHANNELS) and number % 10
        urls.append(f"https://www.example.com/{path}/item.htm?query=1" + (f"&channel_id={number}" if other else ""))
    return pa.array(channels, pa.string()), pa.array(urls, pa.string())


def _word(number: int) -> str:
    base = len(LETTERS)
    return LETTERS[number // base**2] + LETTERS[number // base % base] + LETTERS[number % base]


_CHANNELS, _URLS = _channel_urls()
_EXTRAS = pa.array([_word(i) * 4 for i in range(1000)], pa.string())
