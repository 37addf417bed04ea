"""The data pipeline on PySpark and DuckDB: it turns journals and Kafka's logs into tables of what happened.

Data flows one way, and each step is a pure function of data frames, in Spark's native expressions; Python decodes only
journals on local disks (``journal_files``)::

    files ── sources ──> bronze ──> silver ──> gold ──> report
             (which)     (typed,    (one       (answers)
                         quarantine) vocabulary)

``schema`` has every table's columns.  Only the command line imports this package, and of the rest of the program this
package knows only the journal's schema (``pyproject.toml`` holds both contracts).
"""
