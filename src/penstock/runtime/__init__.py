"""The engine: it starts, feeds, watches and recovers the jobs that maintain streams and views."""
