"""What queries have in common that share a job."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.compile import Timed
from penstock.spark.hosted import Membership


@dataclass(frozen=True)
class HostKey:
    """Whether they keep state, the objects that they read, and those whose watermarks they follow. As text it names their job in the catalogue and on disk."""

    state: bool
    objects: tuple[int, ...]
    timed: tuple[Timed, ...]

    @staticmethod
    def of(member: Membership) -> HostKey:
        return HostKey(member.operators > 0, tuple(sorted(member.objects)), member.timed)

    def __str__(self) -> str:
        followed = "".join(f"_{t.object_id}.{t.lag_ms}" for t in self.timed)
        return ("" if self.state else "s") + "-".join(map(str, self.objects)) + followed

    @staticmethod
    def read(text: str) -> HostKey:
        objects, *followed = text.removeprefix("s").split("_")
        timed = tuple(Timed(*map(int, f.split("."))) for f in followed)
        return HostKey(not text.startswith("s"), tuple(map(int, objects.split("-"))), timed)


__all__ = ["HostKey"]
