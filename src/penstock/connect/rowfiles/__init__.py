"""Files as rows, for COPY and read_files: CSV, JSON lines and Parquet."""
