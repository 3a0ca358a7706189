"""SQL text → statements → bound plan."""
