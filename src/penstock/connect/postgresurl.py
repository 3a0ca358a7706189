"""The address of a PostgreSQL server, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.connect.access import Access
from penstock.connect.options import required
from penstock.errors import PenstockError, fail

_FILES = ("passfile", "servicefile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir")
"""URL parameters that name local files."""

CONNECT_SECONDS = 10


def conninfo(options: Mapping[str, str], access: Access) -> dict[str, Any]:
    """The connection parameters in the options `url`, `user` and `password`. Raises PSK-1011 if the URL is none."""
    url = required("POSTGRES", options, "url")
    try:
        found = conninfo_to_dict(url)
    except psycopg.Error:
        found = {}
    if not url.startswith(("postgresql://", "postgres://")) or not found:
        raise fail(
            "PSK-1011",
            "POSTGRES: url is not the address of a server.",
            hint="Write a URL such as 'postgresql://user@host:5432/database'.",
        )
    for name in ("user", "password"):
        if options.get(name):
            found[name] = options[name]
    for name in _FILES:
        if found.get(name) and found[name] != "system":
            access.path("POSTGRES", name, str(found[name]))
    found.pop("connect_timeout", None)
    found.setdefault("application_name", "penstock")
    return found


def failed(why: psycopg.Error, address: Mapping[str, Any], hint: str) -> PenstockError:
    """The PSK-5002 error for an error of the server or of the connection."""
    # Only the server's message, without the statement after it: Penstock generated the statement, not the user.
    first = (why.diag.message_primary or str(why).strip().partition("\n")[0] or type(why).__name__).rstrip(".")
    where = f"{address.get('host', 'localhost')}:{address.get('port', 5432)}"
    return fail("PSK-5002", f"POSTGRES at {where}: {first}.", hint=hint)
