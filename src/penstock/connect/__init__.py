"""Connectors: sinks that take a stream's epochs, sources that bring rows in, and decoders."""

from penstock.connect import console, files, python
from penstock.connect.listing import ConnectorInfo, connectors
from penstock.connect.python import register_callable
from penstock.connect.sinks import Sink, make_sink, sink_names
from penstock.connect.sources import Source, make_source, source_names

__all__ = [
    "ConnectorInfo",
    "Sink",
    "Source",
    "connectors",
    "console",
    "files",
    "make_sink",
    "make_source",
    "python",
    "register_callable",
    "sink_names",
    "source_names",
]
