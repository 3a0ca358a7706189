"""Connectors: sinks that take a stream's epochs, sources that bring rows in, lookup sources, and decoders."""

from penstock.connect import console, files, postgres, python, tablefiles
from penstock.connect.access import Access
from penstock.connect.listing import ConnectorInfo, connectors
from penstock.connect.lookups import LookupSource, find_lookup, lookup_names
from penstock.connect.python import register_callable
from penstock.connect.secrets import Resolved, redacted, resolve
from penstock.connect.sinks import Sink, make_sink, sink_names
from penstock.connect.sources import Source, make_source, source_names
from penstock.sql.secrets import masked

__all__ = [
    "Access",
    "ConnectorInfo",
    "LookupSource",
    "Resolved",
    "Sink",
    "Source",
    "connectors",
    "console",
    "files",
    "find_lookup",
    "lookup_names",
    "make_sink",
    "make_source",
    "masked",
    "postgres",
    "python",
    "redacted",
    "register_callable",
    "resolve",
    "sink_names",
    "source_names",
    "tablefiles",
]
