"""What brings rows in and carries them out: connectors, sinks, lookup tables with a source."""
