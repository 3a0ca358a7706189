"""Carries out the steps of one case against a database."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.conformance.cases import Case, generated
from tests.spark.following import Follower, Row, plain, settle, tuples

import penstock


class Run:
    """`reopen` opens the database of the case, each time the same one."""

    def __init__(self, case: Case, reopen: Callable[[], penstock.Database]) -> None:
        self.case = case
        self.reopen = reopen
        self.db = reopen()
        self.followers: dict[str, Follower] = {}

    def run(self) -> None:
        self.prepare()
        for number, step in enumerate(self.case.steps, 1):
            self.step(number, step)

    def prepare(self) -> None:
        for statement in self.case.ddl:
            self.db.execute(statement)
        outputs = {s["expect"]["out"] for s in self.case.steps if "expect" in s and s["expect"].get("how") != "table"}
        self.followers = {name: Follower(self.db, name) for name in outputs}

    def step(self, number: int, step: dict[str, Any]) -> None:
        ((kind, argument),) = step.items()
        try:
            getattr(self, f"step_{kind}")(argument)
        except AssertionError as error:
            error.add_note(f"step {number}: {kind}")
            raise

    def step_push(self, push: dict[str, Any]) -> None:
        rows = generated(push["gen"]) if "gen" in push else push["rows"]
        self.db.insert(push["src"], [tuple(r) for r in rows])
        settle(self.db)

    def step_push_json(self, push: dict[str, Any]) -> None:
        self.db.source(push["src"]).insert_json(push["lines"])
        settle(self.db)

    def step_load(self, load: dict[str, Any]) -> None:
        self.db.insert(load["table"], [tuple(r) for r in load["rows"]])
        settle(self.db)

    def step_wm(self, marks: dict[str, int]) -> None:
        for name, millis in marks.items():
            self.db.source(name).watermark(millis)
        settle(self.db)

    def step_checkpoint(self, _: bool) -> None:
        self.db.checkpoint()

    def step_restart(self, _: bool) -> None:
        """Nothing is waited for; what the subscribers had read is not told to anybody."""
        self.db.close()
        self.db = self.reopen()
        for name, follower in self.followers.items():
            again = Follower(self.db, name, as_of=follower.epoch + 1)
            again.epoch = follower.epoch
            self.followers[name] = again

    def step_ok(self, sql: str) -> None:
        self.db.execute(sql)
        settle(self.db)

    def step_error(self, error: dict[str, Any]) -> None:
        with pytest.raises(penstock.PenstockError) as caught:
            self.db.execute(error["sql"])
        assert error.get("match", "") in str(caught.value)

    def step_expect_watermark(self, marks: dict[str, int]) -> None:
        for name, millis in marks.items():
            seen = self.db.watermark if name == "global" else self.db.source(name).current_watermark
            assert seen == millis, name

    def step_subscribe(self, wanted: dict[str, Any]) -> None:
        subscription = self.db.execute(f"{wanted['sql']} WITH (progress = true)")
        assert isinstance(subscription, penstock.Subscription)
        with subscription:
            for frame in wanted["frames"]:
                # Progress is told about once a second; the rest of the time is for a loaded machine.
                change = subscription.next(timeout=30)
                assert change is not None, frame
                if "barrier" in frame:
                    assert (change.kind, change.epoch) == ("progress", frame["barrier"])
                else:
                    assert change.kind == "changes"
                    assert same(tuples(change.arrow()), frame["batch"], ordered=False)

    def step_expect(self, expect: dict[str, Any]) -> None:
        name = expect["out"]
        if expect.get("how") == "table":
            got = tuples(self.db.sql(f"SELECT * FROM {name}").arrow())
        else:
            got = self.followers[name].rows()
        listed = [*expect.get("rows", []), *expect.get("contains", []), *expect.get("contains_null", [])]
        if got and listed and len(got[0]) == len(listed[0]) + 1:
            assert all(row[-1] == 1 for row in got), f"{name}: not only new rows: {got}"
            got = [row[:-1] for row in got]
        if "rows" in expect:
            assert same(got, expect["rows"], ordered="order" in expect), f"{name}: got {got}, not {expect['rows']}"
        for row in [*expect.get("contains", []), *expect.get("contains_null", [])]:
            assert any(equal(g, row) for g in got), f"{name}: {row} is not in {got}"


def same(got: list[Row], wanted: list[list[Any]], *, ordered: bool) -> bool:
    if len(got) != len(wanted):
        return False
    if ordered:
        return all(equal(g, w) for g, w in zip(got, wanted, strict=True))
    left = list(got)
    for w in wanted:
        at = next((i for i, g in enumerate(left) if equal(g, w)), None)
        if at is None:
            return False
        del left[at]
    return True


def equal(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(wanted)
            and all(equal(g, w) for g, w in zip(got, wanted, strict=True))
        )
    if isinstance(wanted, float) and isinstance(got, int | float):
        return math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(plain(got) == wanted)
