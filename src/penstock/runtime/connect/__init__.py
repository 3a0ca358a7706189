"""Connections to other systems: source connectors, sinks, lookup tables with a source."""
