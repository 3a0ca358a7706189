"""Statements and subscriptions of one session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.awaiting import AsyncSubscription
from penstock.api.result import Result
from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.runtime.engine import Engine
from penstock.runtime.statements import execute as ex
from penstock.runtime.statements.faithful import check_condition
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.subscribe import subscribe, subscribe_group
from penstock.serve.change import Change
from penstock.serve.group import GroupSubscription
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.script import parse_condition, parse_script

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Params = Sequence[object] | Mapping[str, object] | None


class Statements:
    """Runs statements in one session and subscribes to their results. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _engine(self) -> Engine:
        return self._session.engine

    def execute(self, sql: str, params: Params = None) -> Result | Subscription | GroupSubscription | None:
        """Runs one or more statements and returns the result of the last."""
        outcome = ex.execute(self._session, sql, params)
        return Result(outcome) if isinstance(outcome, pa.Table) else outcome

    def sql(self, sql: str, params: Params = None) -> Result:
        """Runs statements and returns the rows of the last."""
        outcome = self.execute(sql, params)
        if isinstance(outcome, Result):
            return outcome
        if isinstance(outcome, (Subscription, GroupSubscription)):
            outcome.cancel()
            raise fail(
                "PSK-0009", "SUBSCRIBE returns a stream of changes, not rows.", hint="Use db.subscribe or db.execute."
            )
        return Result(pa.table({}))

    def subscribe(
        self,
        name_or_select: str,
        *,
        snapshot: bool = False,
        as_of: int | None = None,
        up_to: int | None = None,
        where: str | None = None,
        envelope: str = "diff",
        progress: bool = False,
        policy: Policy = "block",
        buffer_bytes: int | None = None,
        buffer_messages: int | None = None,
        as_of_lsn: int | None = None,
        up_to_lsn: int | None = None,
        name: str | None = None,
        on_change: Callable[[Change], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> Subscription:
        """Subscribes to the changes of a stream, view, table or SELECT: from now on, from a past epoch, or after an LSN.

        `as_of_lsn` continues after the last message of an earlier subscription (`change.lsn`): missed changes are replayed or, if they are
        no longer retained, the first message is a resync. `up_to_lsn` ends the subscription when the log has passed that LSN. SELECTs with the same meaning share
        one query, which ends with its last subscription. `name` is shown in SHOW SUBSCRIPTIONS.
        """
        numbers = {
            "as_of": as_of,
            "up_to": up_to,
            "buffer_bytes": buffer_bytes,
            "buffer_messages": buffer_messages,
            "as_of_lsn": as_of_lsn,
            "up_to_lsn": up_to_lsn,
        }
        for argument, value in numbers.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise fail("PSK-0009", f"{argument} must be a number, not {type(value).__name__}.")
        if where is not None:
            # The same checks as for SUBSCRIBE … WHERE: no access outside the database, and the same meaning in Spark.
            tree = parse_condition(where, programs=self._engine.settings.security.allow_programs)
            check_condition(self._engine, where, tree)
            where = tree.sql(dialect=DIALECT)
        target: Any = name_or_select
        if self._engine.catalog.get(name_or_select) is None and len(name_or_select.split()) > 1:
            programs = self._engine.settings.security.allow_programs
            statements = parse_script(name_or_select, programs=programs)
            statement = statements[0] if len(statements) == 1 else None
            if not isinstance(statement, st.Select):
                raise fail("PSK-1001", "Only a name or a SELECT can be subscribed to.")
            target = statement.query
        options = SubscribeOptions(
            snapshot=snapshot,
            as_of=as_of,
            up_to=up_to,
            where=where,
            envelope=envelope,  # type: ignore[arg-type]
            progress=progress,
            policy=policy,
            buffer_bytes=buffer_bytes,
            buffer_messages=buffer_messages,
            as_of_lsn=as_of_lsn,
            up_to_lsn=up_to_lsn,
            name=name,
        )
        return subscribe(self._engine, target, options, on_change, on_error, self._session.variables)

    def subscribe_group(
        self,
        names: Sequence[str],
        *,
        snapshot: bool = False,
        envelope: str = "diff",
        policy: Policy = "block",
        buffer_bytes: int | None = None,
        buffer_messages: int | None = None,
        as_of_lsn: int | None = None,
        up_to_lsn: int | None = None,
        name: str | None = None,
    ) -> GroupSubscription:
        """Subscribes to several tables and views at once. Every message has the changes of all of them up to the same LSN, so an invariant
        between them that holds after every commit holds after every message. `as_of_lsn` continues after the last message of an earlier subscription to the
        group; if changes since then are no longer retained, the first message is a resync."""
        options = SubscribeOptions(
            envelope=envelope,  # type: ignore[arg-type]
            policy=policy,
            buffer_bytes=buffer_bytes,
            buffer_messages=buffer_messages,
            as_of_lsn=as_of_lsn,
            up_to_lsn=up_to_lsn,
            name=name,
            snapshot=snapshot,
        )
        return subscribe_group(self._engine, names, options, self._session.variables)

    async def subscribe_async(self, name_or_select: str, **options: Any) -> AsyncSubscription:
        """`async for change in await db.subscribe_async(…)`. Takes the options of `subscribe`."""
        return AsyncSubscription(await asyncio.to_thread(lambda: self.subscribe(name_or_select, **options)))


class RestrictedSession(Statements):
    """A session that can only read, and to which row rules apply (`Database.session`)."""

    def close(self) -> None:
        """Closes its cursors. Its subscriptions remain open; their holders close them."""
        for cursor in [*self._session.cursors.values()]:
            cursor.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
