"""Generated queries: random schemas, SELECTs and traces, and what they are measured against."""
