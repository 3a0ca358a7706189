"""A failing case as text: schema, SELECT, trace, and how to run it again."""

from __future__ import annotations

from collections.abc import Sequence

from tests.generated.cases import Group
from tests.generated.running import Failure
from tests.generated.traces import Change, Commit


def described(group: Group, failure: Failure, trace: Sequence[Commit] | None = None) -> str:
    """Everything that is needed to see the failure again by hand, and the command that does it."""
    trace = group.trace if trace is None else trace
    case = failure.case
    lines = [f"\n== case {case.number} of seed {group.seed}, after commit {failure.commit}: {failure.message}"]
    lines += [f"{t.ddl()};" for t in group.tables]
    used = [b for b in group.bases if f" {b.name} " in case.select.sql]
    lines += [f"{group.view(b.name, b.select.sql)};" for b in used]
    lines.append(f"{group.view(case.name, case.select.sql)};")
    for i, commit in enumerate(trace[: failure.commit + 1]):
        lines += [f"-- commit {i}: {_shown(change)}" for change in commit]
    changes = len(group.trace) - 2
    lines.append(
        f"again: python -m tests.generated --seed {group.seed} --case {case.number} --changes {changes} --shrink"
    )
    return "\n".join(lines)


def _shown(change: Change) -> str:
    if change.action in ("insert", "delete"):
        return f"{change.action} {change.table} {list(change.rows)}"
    return change.sql()
