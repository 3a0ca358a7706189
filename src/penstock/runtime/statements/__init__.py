"""Execution of statements on an engine."""
