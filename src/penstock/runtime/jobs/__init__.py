"""Streaming queries: how they are planned, run, shared, limited and restarted."""
