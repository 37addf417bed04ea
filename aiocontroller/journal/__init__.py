"""The append-only record of everything seen, decided, written, sent and acknowledged.

The rest of the program uses the interface ``journal.Journal``; ``writer.FileJournal`` writes JSON lines,
``journal.MemoryJournal`` keeps records for tests and the simulation, ``journal.NullJournal`` discards them.
"""
