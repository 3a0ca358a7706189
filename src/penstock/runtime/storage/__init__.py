"""The durable side of a database: log, catalogue, contents, subscribers. It needs no JVM."""
