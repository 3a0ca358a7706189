"""Statements, each carried out on an engine."""
