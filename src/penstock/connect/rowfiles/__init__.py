"""Files as rows, for COPY and read_files: CSV, JSON lines and Parquet."""

from penstock.connect.rowfiles.columns import Wanted
from penstock.connect.rowfiles.reading import Progress, found_files, read_rows
from penstock.connect.rowfiles.writing import target_file, write_rows

__all__ = ["Progress", "Wanted", "found_files", "read_rows", "target_file", "write_rows"]
