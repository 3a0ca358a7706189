"""TPC-H: tables, rows and queries."""
