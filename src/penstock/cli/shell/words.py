"""The keywords that the shell completes: statements and clauses of Penstock's SQL."""

from __future__ import annotations

STATEMENTS = (
    "ALTER", "BEGIN", "CHECKPOINT", "CLOSE", "COMMENT ON", "COMMIT", "COPY", "CREATE", "DECLARE", "DELETE FROM", "DESCRIBE", "DROP", "EXPLAIN", "FETCH", "FLUSH",
    "INSERT INTO", "KILL SUBSCRIPTION", "RESTORE FROM CHECKPOINT", "ROLLBACK", "SELECT", "SET", "SHOW", "START PIPELINE", "STOP PIPELINE",
    "SUBSCRIBE", "UPDATE", "WITH",
)  # fmt: skip

AFTER: dict[str, tuple[str, ...]] = {
    "CREATE": ("SOURCE", "TABLE", "LOOKUP TABLE", "STREAM", "MATERIALIZED VIEW", "SINK", "POLICY", "OR REPLACE"),
    "DROP": ("SOURCE", "TABLE", "LOOKUP TABLE", "STREAM", "MATERIALIZED VIEW", "SINK", "POLICY"),
    "ALTER": ("SOURCE", "TABLE", "LOOKUP TABLE", "STREAM", "MATERIALIZED VIEW", "VIEW", "SINK"),
    "SHOW": (
        "SOURCES",
        "TABLES",
        "STREAMS",
        "VIEWS",
        "SINKS",
        "QUERIES",
        "SUBSCRIPTIONS",
        "POLICIES",
        "CHECKPOINTS",
        "CONNECTORS",
        "COPIES",
        "CREATE",
    ),
    "EMIT": ("ON WINDOW CLOSE", "ON UPDATE", "CHANGES", "EVERY INTERVAL", "FINAL"),
    "EXPLAIN": ("ANALYZE", "SELECT"),
}

CLAUSES = (
    "ALLOW LATENESS INTERVAL", "AND", "AS", "ASOF JOIN", "BETWEEN", "BIGINT", "BOOLEAN", "CASE", "COUNT", "CUMULATE", "DATE", "DECIMAL",
    "DISTINCT", "DOUBLE", "ELSE", "EMIT", "END", "EXISTS", "FILTER", "FIRST_VALUE", "FORMAT", "FROM", "FULL JOIN", "GROUP BY", "HAVING",
    "HOP", "IF EXISTS", "IF NOT EXISTS", "IN", "INNER JOIN", "INT", "INTERVAL", "INTO", "IS NOT NULL", "IS NULL", "JOIN",
    "LAST_VALUE", "LATE DATA TO", "LEFT JOIN", "LIKE", "LIMIT", "MATCH_CONDITION", "MAX", "MIN", "NOT", "NULL", "ON", "OR", "ORDER BY", "OVER",
    "PARTITION BY", "PRIMARY KEY", "RIGHT JOIN", "SESSION", "SET", "STRING", "SUM", "THEN", "TIMESTAMP", "TUMBLE", "UNION ALL",
    "VALUES", "WATERMARK FOR", "WHEN", "WHERE", "WITH", "window_end", "window_start",
)  # fmt: skip
