"""The engine: starts, feeds, monitors and recovers the jobs that maintain streams and views."""
