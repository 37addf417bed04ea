"""The small engine: data frames with PySpark's API, computed by DuckDB within this process, without Java."""
