"""What the state of a query was made by, and whether this version can go on with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, Self

from penstock.plan import nodes as p
from penstock.plan.explain import explain
from penstock.plan.repeats import shape
from penstock.plan.succession import operators
from penstock.plan.wording import worded
from penstock.spark.kernel import NATIVE_FORMAT, SPARK_VERSION, STATE_FORMATS
from penstock.spark.operators import Operator

_FORMAT = 2
_NATIVE = "Spark's own operators"
_EARLIER = 3
"""The state format in the fingerprints of earlier versions."""


class Difference(NamedTuple):
    """What is not as it was. With `lost` state it cannot go on."""

    text: str
    lost: bool


@dataclass(frozen=True)
class Signature:
    """`plan` is a hash of the whole plan, `states` has one of each stateful part, by its operator; `formats` are those of the kernel's state; `path` says who runs each operator: Spark
    (native), the kernel, or the kernel in a job that queries share. `partitions` are those that the state was begun with. All hashes are of the structure of the plan, not of a text of it; those
    of format 1 have expressions as the SQL library writes them, which another version of it may do otherwise."""

    plan: str
    states: tuple[tuple[str, str], ...]
    formats: Mapping[str, int]
    path: tuple[str, ...]
    partitions: int
    spark: str
    format: int = _FORMAT

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """None for the fingerprint of an earlier version."""
        if not text.startswith("{"):
            return None
        found = json.loads(text)
        return cls(
            plan=found["plan"],
            states=tuple((str(name), str(hash)) for name, hash in found["states"]),
            formats=dict(found["formats"]),
            path=tuple(found["path"]),
            partitions=int(found["partitions"]),
            spark=str(found["spark"]),
            format=int(found["format"]),
        )

    def differences(self, now: Signature) -> list[Difference]:
        """How the present differs from this one."""
        found = []
        stateful = bool(self.states)
        if self.states != now.states:
            found.append(Difference(_parts(self.states, now.states), lost=True))
        elif self.plan != now.plan:
            found.append(Difference("its plan, above its stateful operators" if stateful else "its plan", lost=False))
        had = self._formats()
        for name in sorted(had.keys() & now.formats.keys()):
            if had[name] != now.formats[name]:
                text = f"the state of {name} has format {had[name]}, this version has {now.formats[name]}"
                found.append(Difference(text, lost=True))
        if stateful and self.path != now.path and len(self.states) == len(now.states):
            text = f"its operators ran as {', '.join(self.path)}, and would run as {', '.join(now.path)}"
            found.append(Difference(text, lost=True))
        if stateful and self.partitions != now.partitions:
            text = f"{now.partitions} partitions are set, and it keeps its {self.partitions}"
            found.append(Difference(text, lost=False))
        if self.spark != now.spark:
            # Spark reads the state of earlier versions, not of later ones.
            text = f"it ran on Spark {self.spark}, this is {now.spark}"
            found.append(Difference(text, lost=stateful and _number(now.spark) < _number(self.spark)))
        return found

    def _formats(self) -> Mapping[str, int]:
        # The first signatures had no format of Spark's own operators.
        return {**({_NATIVE: 1} if "native" in self.path else {}), **self.formats}

    def by_earlier(self) -> Signature:
        """What the version before the first signatures would have had."""
        return replace(self, formats={name: f for name, f in self.formats.items() if name != _NATIVE})

    def carried_on(self, now: Signature) -> Signature:
        """The signature of a query that goes on with its state."""
        return replace(now, partitions=self.partitions) if self.states else now


def signature(
    query: p.Query, ran: Sequence[Operator], partitions: int, *, shared: bool, format: int = _FORMAT
) -> Signature:
    """The signature of a query as this version runs it, in a format."""
    write = p.Expr.sql if format == 1 else _worded
    nodes = operators(query)
    names = [type(n).__name__ for n in nodes]
    path = tuple("shared" if shared else "native" if o.native else "kernel" for o in ran)
    formats = {name: STATE_FORMATS[name] for name in sorted(set(names))}
    return Signature(
        plan=_hash(f"{query.emit} {shape(query.root, write)}"),
        states=tuple((name, _hash(shape(n, write))) for name, n in zip(names, nodes, strict=True)),
        formats=formats | ({_NATIVE: NATIVE_FORMAT} if "native" in path else {}),
        path=path,
        partitions=partitions,
        spark=SPARK_VERSION,
        format=format,
    )


def earlier(query: p.Query) -> str:
    """The fingerprint that earlier versions would have."""
    return hashlib.sha256(f"{_EARLIER} {explain(query)}".encode()).hexdigest()[:16]


def _worded(expr: p.Expr) -> str:
    return worded(expr.node)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parts(was: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> str:
    had, has = ", ".join(n for n, _ in was) or "none", ", ".join(n for n, _ in now) or "none"
    if had != has:
        return f"its operators with state were {had}, and are {has}"
    other = next(name for (name, a), (_, b) in zip(was, now, strict=True) if a != b)
    return f"the plan of its operator {other}, or of what it reads"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


__all__ = ["Difference", "Signature", "earlier", "signature"]
