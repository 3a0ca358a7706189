"""Connectors: sinks, sources, lookup sources, and decoders."""

from penstock.connect import console, files, postgres, postgressink, python, tablefiles, websocket
from penstock.connect.access import Access
from penstock.connect.listing import ConnectorInfo, connectors
from penstock.connect.lookups import LookupSource, find_lookup, lookup_names, register_lookup
from penstock.connect.python import Receiver, Transactional, register_callable
from penstock.connect.secrets import Resolved, redacted, resolve
from penstock.connect.sinks import Capabilities, Opening, Sink, make_sink, register_sink, sink_names
from penstock.connect.sources import (
    Insert,
    Replayable,
    Report,
    Source,
    Status,
    is_replayable,
    make_source,
    register_source,
    source_names,
)
from penstock.sql.secrets import masked

__all__ = [
    "Access",
    "Capabilities",
    "ConnectorInfo",
    "Insert",
    "LookupSource",
    "Opening",
    "Receiver",
    "Replayable",
    "Report",
    "Resolved",
    "Sink",
    "Source",
    "Status",
    "Transactional",
    "connectors",
    "console",
    "files",
    "find_lookup",
    "is_replayable",
    "lookup_names",
    "make_sink",
    "make_source",
    "masked",
    "postgres",
    "postgressink",
    "python",
    "redacted",
    "register_callable",
    "register_lookup",
    "register_sink",
    "register_source",
    "resolve",
    "sink_names",
    "source_names",
    "tablefiles",
    "websocket",
]
