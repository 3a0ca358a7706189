"""Runs a group through Penstock: all its SELECTs as views of one database, compared after every commit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession
from tests.generated.cases import Base, Case, Group
from tests.generated.compare import bag, difference
from tests.generated.oracles import CannotSay, Duck, SparkBatch
from tests.generated.schemas import Row
from tests.generated.traces import Commit, Model, perform
from tests.spark.following import Follower, Sum
from tests.spark.following import bag as follow_bag

import penstock
from penstock.spark.compile import UNIT_OBJECT

DOCUMENTED = ("PSK-1012", "PSK-3002", "PSK-3003")
"""What a random SELECT may be refused with: forms that the SQL reference lists as not supported."""

SETTLED_S = 240.0
_STATE_S = 20.0
_AT_ONCE = 4


@dataclass(frozen=True)
class Failure:
    """A case that went wrong: when, and how."""

    case: Case
    commit: int
    kind: str
    message: str


@dataclass
class Report:
    """What was run. `replaced` are the base views that were refused. `duck` and `spark` count comparisons; `dialect` those where DuckDB alone was of another opinion."""

    cases: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    replaced: list[tuple[str, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    duck: int = 0
    spark: int = 0
    dialect: int = 0
    unmeasured: int = 0

    @property
    def refusal_rate(self) -> float:
        return sum(self.refused.values()) / max(1, self.cases + sum(self.refused.values()))

    def summary(self) -> str:
        refused = f"{sum(self.refused.values())} refused ({self.refusal_rate:.1%}) {dict(self.refused) or ''}".rstrip()
        refused += f", {len(self.replaced)} base views replaced" if self.replaced else ""
        measures = f"{self.duck} comparisons with DuckDB, {self.spark} with Spark"
        odd = f"{self.dialect} where DuckDB alone differs, {self.unmeasured} without a measure"
        return f"{self.cases} cases, {len(self.failures)} failed, {refused}; {measures}, {odd}"

    def add(self, other: Report) -> None:
        for name in ("cases", "duck", "spark", "dialect", "unmeasured"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.refused.update(other.refused)
        self.refusals += other.refusals
        self.replaced += other.replaced
        self.failures += other.failures


def before_the_end(commit: int, commits: int) -> bool:
    """After the last commit but one: in the end nothing is left."""
    return commit == commits - 2


def every_commit(commit: int, commits: int) -> bool:
    return True


def _as_date(value: object) -> object:
    return value.date() if isinstance(value, datetime) else value


class Running:
    """One group in one database."""

    def __init__(
        self,
        reopen: Callable[[], penstock.Database],
        spark: SparkSession,
        group: Group,
        trace: Sequence[Commit] | None = None,
    ) -> None:
        """`reopen` opens the same folder each time, which is empty at first."""
        self._reopen = reopen
        self.db = reopen()
        self.group = group
        self.trace = list(group.trace if trace is None else trace)
        self.model = Model(group.tables)
        self.report = Report()
        self.cases: list[Case] = []
        self._batch = SparkBatch(spark, group.tables)
        self._duck = Duck(group.tables)
        self._broken: set[str] = set()
        self._followers: dict[str, Follower] = {}
        self._sums: dict[str, Sum] = {}
        for table in group.tables:
            self.db.execute(table.ddl())
        self._done = 0
        for i, base in enumerate(group.bases):
            self._base(i, base)
        self._views = {b.name: b.select.sql for b in group.bases if b.select.spark}

    def _base(self, i: int, base: Base) -> None:
        """Makes a base view; another one takes the place of one that is refused for a documented reason."""
        while (why := self._refused(base.name, base.select.sql)) is not None:
            self.report.replaced.append((why, base.select.sql))
            base = self.group.replace(i)

    def _refused(self, name: str, sql: str) -> str | None:
        """Makes a view. The first line of the error if the SELECT is a form that is documented as refused; other errors are raised."""
        try:
            self.db.execute(self.group.view(name, sql))
        except penstock.PenstockError as error:
            if error.code in DOCUMENTED and error.position is not None:
                return str(error).split("\n")[0]
            raise
        return None

    def load(self) -> None:
        """Performs the first commit already, so that the views are made over rows that are there."""
        perform(self.db, self.model.apply(self.trace[0]))
        self._done = 1

    def create(self, cases: Iterable[Case], wanted: int) -> None:
        """Makes a view of each case until there are as many as wanted."""
        drawn = iter(cases)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while (missing := wanted - len(self.cases)) > 0:
                batch = [c for c, _ in zip(drawn, range(missing), strict=False)]
                if not batch:
                    break
                self.cases += [c for c in pool.map(self._view, batch) if c is not None]
        self.report.cases = len(self.cases)

    def _view(self, case: Case) -> Case | None:
        try:
            why = self._refused(case.name, case.select.sql)
        except Exception as error:
            self._failed(case, -1, "create", f"CREATE failed: {type(error).__name__}: {error}")
            return None
        if why is None:
            return case
        self.report.refused[why.partition(":")[0]] += 1
        self.report.refusals.append((why, case.select.sql))
        return None

    def measurable(self, case: Case) -> bool:
        """True if Spark batch takes the SELECT."""
        self._batch.load(self.model.rows, self._views)
        return self._ask(self._batch, case) is not None

    def drop(self, case: Case) -> None:
        self.db.execute(f"DROP MATERIALIZED VIEW {case.name}")
        self.cases.remove(case)
        self._followers.pop(case.name, None)
        self._sums.pop(case.name, None)

    def reopen(self) -> None:
        self.db.close()
        self.db = self._reopen()
        self.follow()

    def perform_next(self) -> None:
        """Performs the next commit of the trace already, which `run` would do."""
        perform(self.db, self.model.apply(self.trace[self._done]))
        self._done += 1

    def resume(self, case: Case) -> None:
        """Starts a query again that has failed, and follows it from where it was."""
        self.db.execute(f"RESTART MATERIALIZED VIEW {case.name}")
        # Whoever follows it before it is level again is told that it had been stopped.
        self.db.flush(timeout=SETTLED_S)
        self._follow_one(case)

    def run(
        self,
        spark_at: Callable[[int, int], bool],
        restart: int | None = None,
        empty_first: bool = False,
        between: Callable[[int], None] | None = None,
    ) -> Report:
        """The whole trace, with every case compared after every commit: with DuckDB, or Spark batch where DuckDB cannot answer.

        `spark_at(commit, commits)` says after which commits Spark batch is asked for every case.

        After the commit `restart` the database is closed and opened again. With `empty_first` there is a commit without rows before all
        others, which shows how much state a query has over nothing; otherwise it is known of those alone that have none. `between` is called
        before each commit.
        """
        self.follow()
        before = dict.fromkeys((c.name for c in self.cases if not self._constant(c)), 0)
        if empty_first:
            self._nothing()
            self._settle(-1)
            before = self._state()
        for number in range(len(self.trace)):
            if number >= self._done:
                if between is not None:
                    between(number)
                if number >= self._done:
                    self.perform_next()
            if number == restart:
                # The queries may have seen the commit, or not.
                self.reopen()
            self._settle(number)
            self._check(number, spark_at(number, len(self.trace)))
        if not any(self.model.rows.values()) and not self.group.tables[0].source:
            self._shrunk(before)
        return self.report

    def _nothing(self) -> None:
        """A commit without rows: every query has an epoch, and the state that it keeps over no rows at all."""
        table = self.group.tables[0]
        if table.source:
            return
        rows = next((c.rows[:1] for t in self.trace for c in t if c.table == table.name and c.action == "insert"), ())
        with self.db.transaction() as transaction:
            transaction.insert(table.name, list(rows))
            transaction.delete(table.name, list(rows))

    # The changelog

    def follow(self) -> None:
        """Follows every view from its first epoch on, or from the epoch after the last that was seen."""
        for case in self.cases:
            self._follow_one(case)

    def _follow_one(self, case: Case) -> None:
        old = self._followers.get(case.name)
        new = Follower(self.db, case.name, as_of=0 if old is None else old.epoch + 1)
        new.epoch = 0 if old is None else old.epoch
        self._followers[case.name] = new

    def _add_up(self, case: Case, number: int, got: list[Row]) -> None:
        """Each epoch is consolidated and takes away only what is there, and all epochs together are the contents."""
        total = self._sums.setdefault(case.name, Sum())
        try:
            for change in self._followers[case.name].changes():
                if "__weight" in change.arrow().column_names:
                    total.add(change)
                else:
                    total.total.update(follow_bag(tuple(r.values()) for r in change.rows()))
        except AssertionError as error:
            self._failed(case, number, "changes", str(error))
            return
        if total.total != follow_bag(got):
            self._failed(case, number, "changes", f"the changes add up to {dict(total.total)}, the contents are {got}")

    def _settle(self, number: int) -> None:
        self.db.flush(timeout=SETTLED_S)
        broken = {s.name: str(s.error) for s in self.db.status() if s.error}
        for case in self.cases:
            if case.name in broken:
                self._failed(case, number, "query", f"the query failed: {broken[case.name]}")

    def _failed(self, case: Case, number: int, kind: str, message: str) -> None:
        if case.name not in self._broken:
            self._broken.add(case.name)
            self.report.failures.append(Failure(case, number, kind, message))

    # Contents

    def _check(self, number: int, with_spark: bool) -> None:
        self._duck.load(self.model.rows, {b.name: b.select.sql for b in self.group.bases if b.select.duck})
        self._batch.load(self.model.rows, self._views)
        sound = [c for c in self.cases if c.name not in self._broken]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            seen = pool.map(lambda c: self._look(c, with_spark), sound)
            for case, (rows, said, wanted) in zip(sound, seen, strict=True):
                self._add_up(case, number, rows)
                self._compare(case, number, bag(rows), said, wanted)

    def _look(self, case: Case, with_spark: bool) -> tuple[list[Row], Counter[Row] | None, Counter[Row] | None]:
        """The contents of a view, what DuckDB says, and what Spark says, which is asked if DuckDB does not agree."""
        rows = self.db.sql(f"SELECT * FROM {case.name}").fetchall()
        said = self._ask(self._duck, case) if case.select.duck else None
        agreed = said is not None and difference(bag(rows), said) is None
        asked = case.select.spark and (with_spark or not agreed)
        return rows, said, self._ask(self._batch, case) if asked else None

    def _compare(
        self, case: Case, number: int, got: Counter[Row], said: Counter[Row] | None, wanted: Counter[Row] | None
    ) -> None:
        self.report.duck += said is not None
        self.report.spark += wanted is not None
        measure = said if wanted is None else wanted
        if measure is None:
            self.report.unmeasured += 1
            return
        wrong = difference(got, measure)
        if wrong is not None:
            more, less = wrong
            self._failed(case, number, "rows", f"too many: {dict(more)}\n  missing: {dict(less)}")
        elif said is not None and difference(got, said) is not None:
            self.report.dialect += 1

    def _ask(self, oracle: Duck | SparkBatch, case: Case) -> Counter[Row] | None:
        """Its rows; None if it cannot run the query. A date and days are a timestamp in DuckDB."""
        try:
            rows = oracle.answer(case.select.sql)
        except CannotSay:
            return None
        kinds = [kind for _, kind, _ in case.select.columns]
        return bag([[_as_date(v) if k == "date" else v for v, k in zip(r, kinds, strict=True)] for r in rows])

    # State

    def _state(self) -> dict[str, int]:
        """Rows that the operators of each query keep."""
        jobs = self.db._engine.jobs
        out = {}
        for case in self.cases:
            info = self.db._engine.catalog.get(case.name)
            job = jobs.by_object.get(info.id) if info is not None else None
            if job is not None:
                out[case.name] = sum(operator.rows for operator in job.kept(info.id))
        return out

    def _constant(self, case: Case) -> bool:
        """True if rows that are always there are among the query's inputs, or those of a view that it reads: constants, or the
        row of a total.
        """
        info = self.db._engine.catalog.get(case.name)
        assert info is not None
        reads = [info.id]
        for object_id in reads:
            planned = self.db._engine.jobs.planned.get(object_id)
            reads += planned.compiled.objects if planned is not None else []
        return UNIT_OBJECT in reads

    def _shrunk(self, before: dict[str, int]) -> None:
        """After everything is deleted the state is what it was before the first row. Figures come a little after the epoch."""
        end = time.monotonic() + _STATE_S
        while True:
            now = self._state()
            left = {n: now[n] for n, k in before.items() if n in now and now[n] != k and n not in self._broken}
            if not left or time.monotonic() > end:
                break
            time.sleep(0.1)
        for case in self.cases:
            if case.name in left:
                text = f"{left[case.name]} rows are left in its state, {before.get(case.name)} at the start"
                self._failed(case, len(self.trace) - 1, "state", text)
