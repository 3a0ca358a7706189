"""Every error code: its title and its default hint.

`docs/reference/errors.md` is generated from this table.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    title: str
    hint: str | None = None


CODES: dict[str, Code] = {
    # 0 configuration and use
    "PSK-0001": Code("unknown setting"),
    "PSK-0002": Code("bad value for a setting"),
    "PSK-0003": Code(
        "unresolved variable in an option value", "Set it in config or in the environment, or write ${NAME:-default}."
    ),
    "PSK-0004": Code("the database is closed", "Open it again with penstock.open()."),
    "PSK-0005": Code(
        "the folder is in use by another process",
        "Close the other process first; only one process at a time can open a database.",
    ),
    "PSK-0006": Code("illegal state transition"),
    "PSK-0007": Code("Spark could not be started", "Run `penstock doctor` to see what is missing."),
    "PSK-0008": Code("a different Spark session is already running in this process"),
    "PSK-0009": Code("bad argument"),
    "PSK-0010": Code("timed out"),
    "PSK-0011": Code("the setting is fixed while the database is open"),
    "PSK-0012": Code("not allowed by the security settings"),
    # 1 parsing and names
    "PSK-1001": Code("syntax error"),
    "PSK-1002": Code("unknown name"),
    "PSK-1003": Code("name already exists", "Use IF NOT EXISTS or OR REPLACE, or drop it first."),
    "PSK-1004": Code("unknown column"),
    "PSK-1005": Code("ambiguous column", "Qualify the column with its table."),
    "PSK-1006": Code("unknown function"),
    "PSK-1007": Code("type error in an expression"),
    "PSK-1008": Code("wrong kind of object"),
    "PSK-1009": Code("object is in use", "Drop its dependents first, or add CASCADE."),
    "PSK-1010": Code("unknown option"),
    "PSK-1011": Code("bad option value"),
    "PSK-1012": Code("not supported"),
    "PSK-1013": Code("unknown type"),
    "PSK-1014": Code("duplicate column name"),
    "PSK-1015": Code("reserved name", "Names that start with two underscores are reserved for Penstock."),
    "PSK-1016": Code("wrong number of columns or values"),
    "PSK-1017": Code("cyclic dependency"),
    "PSK-1018": Code("missing bound parameter"),
    "PSK-1019": Code(
        "misplaced aggregate or column",
        "Every selected column must be in GROUP BY or inside an aggregate; aggregates belong in SELECT and HAVING.",
    ),
    "PSK-1020": Code(
        "statement too complex",
        "Split it: move parts into views, join a table instead of listing many values, use IN (…) for a long condition.",
    ),
    "PSK-1021": Code("the file cannot be read or written"),
    "PSK-1022": Code("the file exists", "Choose another name, or add (overwrite = true)."),
    # 2 time and windows
    "PSK-2001": Code(
        "unsupported watermark",
        "Write WATERMARK FOR ts AS ts - INTERVAL 'n' unit, WATERMARK FOR ts, or … AS PROCTIME().",
    ),
    "PSK-2002": Code("event time column has the wrong type", "Event time is TIMESTAMP, or BIGINT Unix milliseconds."),
    "PSK-2003": Code("bad window"),
    "PSK-2004": Code("no watermark to close windows", "Declare WATERMARK FOR … on the source, or use EMIT CHANGES."),
    "PSK-2005": Code("EMIT needs a window", "Group by TUMBLE, HOP, SESSION or CUMULATE, or use EMIT CHANGES."),
    "PSK-2006": Code("conflicting EMIT and lateness"),
    "PSK-2007": Code(
        "now() outside a temporal filter",
        "now() can only bound a time column: WHERE ts > now() - INTERVAL '10' MINUTE.",
    ),
    "PSK-2008": Code("bad interval"),
    "PSK-2009": Code(
        "string too long for its column", "Cut it with left(…), or declare the column longer, or as STRING."
    ),
    "PSK-2010": Code("type that no column can have", "Give the column a type that can hold its values."),
    "PSK-2011": Code(
        "type that cannot be compared", "Compare a part of it, or its text: to_json(c), CAST(c AS STRING)."
    ),
    "PSK-2012": Code("type that the sink cannot write", "Convert it in the query: CAST(c AS STRING), to_json(c)."),
    # 3 joins
    "PSK-3001": Code(
        "unbounded join between streaming sources",
        "Bound it: ON … AND b.ts BETWEEN a.ts - INTERVAL … AND a.ts + INTERVAL …; or allow the state with WITH (state_ttl = …) or WITH (unbounded_state = true).",
    ),
    "PSK-3002": Code("join without an equality", "Add an equality between the two sides to ON."),
    "PSK-3003": Code("unsupported join"),
    # 4 state
    "PSK-4001": Code("unbounded ORDER BY on a stream", "Add LIMIT n, or order when you SELECT from the view."),
    "PSK-4002": Code("the state limit is reached"),
    "PSK-4003": Code(
        "the recursion does not terminate",
        "Add a condition to the recursive step, use UNION instead of UNION ALL, or allow more steps with WITH (max_depth = n).",
    ),
    # 5 connectors and delivery
    "PSK-5001": Code("unknown connector"),
    "PSK-5002": Code("connector failed"),
    "PSK-5003": Code("row does not match the object's schema"),
    "PSK-5004": Code(
        "sink cannot accept a changelog",
        "Use a sink that applies updates, or EMIT ON WINDOW CLOSE to make the stream append-only.",
    ),
    "PSK-5005": Code("object is not writable"),
    "PSK-5006": Code("constraint violated"),
    "PSK-5007": Code("row could not be decoded"),
    "PSK-5008": Code("a row was changed by another commit", "Nothing was stored; run the transaction again."),
    "PSK-5010": Code("subscriber was too slow"),
    "PSK-5011": Code(
        "history is no longer retained", "Subscribe with a snapshot, or retain more with WITH (retain_history = …)."
    ),
    "PSK-5012": Code(
        "cannot be subscribed to", "Create a stream on it: CREATE STREAM n AS SELECT * FROM …, and subscribe to that."
    ),
    "PSK-5013": Code(
        "the log has reached its size limit", "SHOW LOG lists what holds it; raise log.max_bytes to allow more."
    ),
    "PSK-5014": Code("the source is too far ahead of its watermark group"),
    "PSK-5015": Code("the target belongs to another sink"),
    "PSK-5016": Code(
        "the sink did not answer in time", "Check the target, or allow more time with WITH (write_timeout = …)."
    ),
    "PSK-5017": Code(
        "the target and the sink's position disagree", "Drop the sink and create it again with a new target."
    ),
    "PSK-5018": Code("the subscription was ended by KILL SUBSCRIPTION"),
    "PSK-5019": Code("a row rule cannot be applied"),
    "PSK-5020": Code(
        "the source is full",
        "Insert more slowly, or allow more with max_pending_rows and max_pending_bytes; SHOW QUERIES shows which query is behind.",
    ),
    "PSK-5021": Code("too many submitted rows wait", "Submit more slowly, or use BackpressureStrategy.PAUSE_SOURCE."),
    "PSK-5022": Code(
        "a sink cannot take back what it has delivered",
        "RESTORE FROM CHECKPOINT n WITH (delivered = 'keep') leaves it there.",
    ),
    "PSK-5023": Code("the database was restored", "Subscribe again."),
    "PSK-5030": Code(
        "exactly-once needs sources that can replay",
        "Use WITH (guarantee = 'at-least-once'), or feed the source by INSERT, which is durable when it returns.",
    ),
    "PSK-5031": Code(
        "the sink cannot deliver exactly once",
        "Use WITH (guarantee = 'at-least-once'), or a sink that can: FILES, POSTGRES, or PYTHON with a transactional object.",
    ),
    "PSK-5032": Code(
        "exactly-once needs a synchronous log",
        "Set log.wal_mode = 'sync', or use WITH (guarantee = 'at-least-once').",
    ),
    "PSK-5033": Code("an exactly-once sink reads a source that cannot replay"),
    # 6 checkpoints and recovery
    "PSK-6001": Code(
        "stored data is damaged or unreadable",
        "penstock checkpoint list shows what penstock checkpoint restore can go back to. Or restore the folder from a backup.",
    ),
    "PSK-6002": Code("the folder was written by a newer version"),
    "PSK-6003": Code("the stored query does not match its checkpoint"),
    "PSK-6004": Code("the contents of an object are damaged"),
    "PSK-6005": Code("there is no such checkpoint", "SHOW CHECKPOINTS lists those that are kept."),
    "PSK-6006": Code("the checkpoint cannot be restored", "A newer one may be whole: SHOW CHECKPOINTS lists them."),
    "PSK-6007": Code("the database is being restored", "Try again when RESTORE has ended."),
    "PSK-6008": Code(
        "the place of a savepoint or of uploaded checkpoints cannot be used",
        "Use an empty folder, file://…, or s3://bucket/prefix.",
    ),
    "PSK-6009": Code("a savepoint is damaged"),
    "PSK-6010": Code("checkpointing is disabled"),
    "PSK-6011": Code("a data directory is required", "Set data_dir."),
    "PSK-6012": Code("WAL mode requires checkpointing"),
    "PSK-6013": Code("no checkpoint available"),
    "PSK-6014": Code("checkpoint operation timed out"),
    "PSK-6015": Code("invalid checkpoint configuration"),
    "PSK-6016": Code("checkpoint I/O error"),
    "PSK-6017": Code("the query is being replaced"),
    "PSK-6018": Code("the state of a query cannot be carried over"),
    "PSK-6019": Code("the new version of a query was not taken", "The old version runs on."),
    # 7 execution
    "PSK-7001": Code("query failed"),
    "PSK-7002": Code("cancelled"),
    "PSK-7004": Code("write to disk failed"),
    "PSK-7005": Code(
        "Spark's JVM exited",
        "db.start(), or START PIPELINE, starts a new JVM and resumes from the last commit.",
    ),
    "PSK-7006": Code("the query has failed or is stopped", "SHOW QUERIES shows the reason; RESTART … retries it."),
    "PSK-7007": Code("rows could not be computed"),
    "PSK-7009": Code(
        "the result does not fit in memory",
        "Reduce the result (WHERE, LIMIT, aggregates), or raise the setting serve.memory_limit.",
    ),
    # 8 internal
    "PSK-8001": Code("internal error", "This is a bug in Penstock."),
}
