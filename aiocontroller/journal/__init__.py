"""The append-only record of everything seen, decided, written, sent and acknowledged.

The rest of the program uses the interface ``Journal``; ``FileJournal`` writes JSON lines, ``MemoryJournal`` keeps
records for tests and the simulation, ``NullJournal`` discards them.
"""

from aiocontroller.journal.journal import Journal, JournalStatistics, MemoryJournal, NullJournal
from aiocontroller.journal.records import FORMAT_VERSION, Record, decode_record, encode_records
from aiocontroller.journal.writer import FileJournal

__all__ = [
    "FORMAT_VERSION",
    "FileJournal",
    "Journal",
    "JournalStatistics",
    "MemoryJournal",
    "NullJournal",
    "Record",
    "decode_record",
    "encode_records",
]
