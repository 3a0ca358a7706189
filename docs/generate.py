"""Makes the reference pages from the code: `python docs/generate.py`."""

from __future__ import annotations

import json
from pathlib import Path as File

from pydantic.fields import FieldInfo

from penstock import errors
from penstock.catalog.kinds import KINDS
from penstock.config import Settings
from penstock.config.keys import is_map, section_of
from penstock.config.load import ENV_PREFIX, FILE_NAME
from penstock.plan.functions import AGGREGATES, ANALYTIC, Path

REFERENCE = File(__file__).resolve().parent / "reference"


def errors_page() -> str:
    """Every code, in groups by its range."""
    lines = [
        "# Error codes",
        "",
        "<!-- Made by docs/generate.py from penstock.errors.catalogue. -->",
        "",
        "Every error is a `PenstockError` with `.code`, `.detail`, `.hint` and `.position`. The first digit of its code says what it is about,",
        "and which subclass it is. Where an error knows better advice than the one below, it gives that.",
    ]
    group: type[errors.PenstockError] | None = None
    for code, entry in sorted(errors.CODES.items()):
        kind = type(errors.fail(code, ""))
        if kind is not group:
            group = kind
            about = (kind.__doc__ or "").partition(": ")[2].rstrip(".")
            lines += ["", f"## `{kind.__name__}`: {about}", "", "| code | what | what to do |", "|---|---|---|"]
        lines.append(f"| `{code}` | {_cell(entry.title)} | {_cell(entry.hint or '')} |")
    return "\n".join(lines) + "\n"


def types_page() -> str:
    """Every type, and where it may appear."""
    lines = [
        "# Types",
        "",
        "<!-- Made by docs/generate.py from penstock.catalog.kinds. -->",
        "",
        "Types are Spark's. Every type can be a column, a literal, an argument of an aggregate that only keeps it (`array_agg`, `first_value`, `max_by`, `lag` …), and in a",
        "subscription. Where a cell below is empty, the statement is refused (`PSK-1007`, `PSK-2010` to `PSK-2012`). An array or a struct may appear where all its parts may.",
        "",
        "*Keys* are `PRIMARY KEY`, also of lookup tables. *Equality* is `=`, join keys, `DISTINCT`, `UNION` and other set operations, `PARTITION BY`. *Order* is `ORDER BY`, `MIN` and `MAX`.",
        "*Text* are FILES sinks; FILES in Parquet and PYTHON take every type. POSTGRES takes all but intervals inside of nested types.",
        "",
        "| type | Arrow | Python | keys | GROUP BY | equality | order | text |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for k in KINDS:
        flags = " | ".join("yes" if f else "" for f in (k.key, k.grouped, k.equal, k.ordered))
        lines.append(f"| `{k.declared}` | {_cell(k.arrow)} | {_cell(k.python)} | {flags} | {k.text} |")
    return "\n".join(lines) + "\n"


def aggregates_page() -> str:
    """Every aggregate function, and what it costs a continuous query."""
    lines = [
        "# Aggregates",
        "",
        "<!-- Made by docs/generate.py from penstock.plan.functions. -->",
        "",
        "These are the aggregates of a continuous query. A one-shot SELECT has all of Spark's. Functions are Spark's, with three refinements: a tie of `mode` goes to the smallest value, the",
        "array of `collect_set` is sorted, and `approx_count_distinct` and `percentile_approx` are exact (except where Spark's own operator maintains a window that closes).",
        "",
        "- *Maintained*: how the value follows the rows. *Incremental* ones apply each change. Of those *recomputed*, the view keeps all rows, and Spark computes a group that has changed again.",
        "- *Native*: Spark's own streaming aggregate is used where a query has no other operator with state, its rows are not retracted, and it emits when windows close.",
        "- *Keeps*: for one call in one group. With `DISTINCT` a call keeps each different value instead. *Cost* is that of an epoch, if rows are retracted; `EXPLAIN` has the same words.",
        "- *Arguments*: a call with more than these is recomputed.",
        "- `ORDER BY` inside the call, and `WITHIN GROUP`, where the last column has them. All can have `FILTER (WHERE …)`.",
        "",
        "| function | also | maintained | native | keeps | cost | over no rows | type | arguments | order |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for f in sorted(AGGREGATES.values(), key=lambda f: (list(Path).index(f.path), f.name)):
        also = " ".join(f"`{a}`" for a in f.aliases)
        kept = (f.keeps.value, f.work) if f.path is not Path.REFUSED else ("", "")
        order = "`ORDER BY`" if f.ordered else "`WITHIN GROUP`" if f.within else ""
        cells = (
            f"`{f.name}`", also, f.path.value, "yes" if f.native else "", *kept, f.of_nothing.value, f.result.value, str(f.most or ""), order,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Analytic functions, which need `OVER`: "
        + " ".join(f"`{name}`" for name in ANALYTIC)
        + ". Of the aggregates, those that are",
        "incremental can have `OVER` too.",
    ]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Every setting, in groups by section."""
    lines = [
        "# Settings",
        "",
        "<!-- Made by docs/generate.py from penstock.config. -->",
        "",
        "Where a setting comes from; a later place wins, key by key:",
        "",
        "1. the default,",
        f'2. `{FILE_NAME}` in the folder of the database: `[spark]`, then `heap = "4g"`,',
        f"3. the environment: `{ENV_PREFIX}SPARK__HEAP=4g`; a map is one JSON object, or one variable per entry (`{ENV_PREFIX}VARIABLES__HOST=db1`),",
        '4. `penstock.open(path, config={"spark.heap": "4g"})`, or nested: `{"spark": {"heap": "4g"}}`.',
        "",
        "An unknown key is an error (`PSK-0001`), and so is a value that does not fit (`PSK-0002`).",
    ]
    loose: list[str] = []
    for name, field in Settings.model_fields.items():
        section = section_of(field)
        if section is None:
            loose.append(_setting(name, field))
            continue
        lines += ["", f"## `{name}`", "", section.__doc__ or "", "", "| key | default | meaning |", "|---|---|---|"]
        lines += [_setting(f"{name}.{key}", inner) for key, inner in section.model_fields.items()]
    lines += ["", "## Without a section", "", "| key | default | meaning |", "|---|---|---|", *loose]
    return "\n".join(lines) + "\n"


def _setting(name: str, field: FieldInfo) -> str:
    default = json.dumps(field.get_default(call_default_factory=True, validated_data={}))
    return f"| `{name}{'.<name>' if is_map(field) else ''}` | `{default}` | {_cell(field.description or '')} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


PAGES = {
    "aggregates.md": aggregates_page,
    "errors.md": errors_page,
    "settings.md": settings_page,
    "types.md": types_page,
}


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
