"""The data pipeline on PySpark and DuckDB: it turns journals and Kafka's logs into tables of what happened.

Data flow one way, and each step is a pure function of data frames on Spark's native expressions; Python decodes only
journals on local disks (``journal_files``)::

    files ── sources ──> bronze ──> silver ──> gold ──> report
             (which)     (typed,    (one       (answers)
                         quarantine) vocabulary)

``schema`` has every table's columns.  No other part of the program imports this package, except its command line; this
package knows only the journal's schema of the rest (``pyproject.toml`` holds both contracts).
"""
