"""What people write for other systems, and what to write here instead: for hints."""

from __future__ import annotations

import re

FUNCTIONS = {
    "approx_distinct": "approx_count_distinct",
    "arg_max": "max_by",
    "arg_min": "min_by",
    "argmax": "max_by",
    "argmin": "min_by",
    "array_length": "size",
    "charindex": "locate",
    "date_bin": "TUMBLE, or date_trunc",
    "earliest_by_offset": "first_value",
    "format": "format_string",
    "getdate": "now",
    "group_concat": "string_agg",
    "iff": "if",
    "json_agg": "to_json(array_agg(…))",
    "jsonb_agg": "to_json(array_agg(…))",
    "latest_by_offset": "last_value",
    "list": "array_agg",
    "list_agg": "array_agg",
    "list_contains": "array_contains",
    "oct": "conv(n, 10, 8)",
    "quantile": "percentile",
    "quantile_cont": "percentile",
    "quantile_disc": "percentile_disc(p) WITHIN GROUP (ORDER BY x)",
    "regexp_matches": "regexp_like, or regexp_extract_all",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "strftime": "date_format",
    "truncate": "floor, or round",
}
"""Functions of other systems, and what they are called here."""

STATEMENTS = {
    "ANALYZE": "Penstock needs no statistics.",
    "CACHE": "CREATE MATERIALIZED VIEW keeps the rows of a query.",
    "GRANT": "CREATE POLICY restricts what a session sees.",
    "MERGE": "INSERT replaces the row of its key; UPDATE and DELETE change others.",
    "REPLACE": "INSERT replaces the row of its key.",
    "TAIL": "Write SUBSCRIBE name.",
    "TRUNCATE": "Write DELETE FROM name.",
    "UPSERT": "INSERT replaces the row of its key.",
    "USE": "There are no schemas: names have one part.",
}
OBJECTS = {
    "DATABASE": "There are no schemas: names have one part.",
    "INDEX": "A PRIMARY KEY is indexed; a materialized view needs no index.",
    "SCHEMA": "There are no schemas: names have one part.",
    "SEQUENCE": "DEFAULT uuid() gives each row a value of its own.",
    "TEMP": "Objects stay until they are dropped; penstock.open() without a path is a temporary database.",
    "TEMPORARY": "Objects stay until they are dropped; penstock.open() without a path is a temporary database.",
}
"""After CREATE."""

_SYNTAX = {
    r"\bSIMILAR\s+TO\b": "Write RLIKE.",
    r"\bAT\s+TIME\s+ZONE\b": "Write from_utc_timestamp(ts, 'Europe/Berlin').",
    r"\bBETWEEN\s+(A)?SYMMETRIC\b": "Write BETWEEN least(a, b) AND greatest(a, b).",
    r"\bMAP\s*\{": "Write map('a', 1).",
    r"\bARRAY\s*\[|^\s*\[|[,(]\s*\[": "Write array(1, 2).",
    r"\{": "Write named_struct('a', 1).",
    r"(?<![\w)])~|!?~\*?\s*'": "Write RLIKE.",
}
"""Syntax of other systems, as patterns, and what to write here."""


def syntax_hint(text: str) -> str | None:
    """The hint for a text at or near which there is a syntax error."""
    return next((hint for pattern, hint in _SYNTAX.items() if re.search(pattern, text, re.IGNORECASE)), None)
