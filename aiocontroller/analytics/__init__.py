"""The data pipeline on PySpark: journals and the logs that operators already have become tables of what happened.

Data flow one way, each step a pure function of data frames on Spark's native expressions; only journals on local disks
are decoded by Python (``journal_files``)::

    files ── sources ──> bronze ──> silver ──> gold ──> report
             (which)     (typed,    (one       (answers)
                         quarantine) vocabulary)

``schema`` is every table's columns.  Nothing else of the program imports this package, except its command line; of the
rest it knows the journal's schema only (``pyproject.toml`` holds both contracts).
"""
