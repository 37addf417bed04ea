"""Records of many partitions at once."""

from __future__ import annotations

from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.journal.records import PartitionColumns, Record
from aiocontroller.lab.simulated_net import SimulatedClock
from aiocontroller.lab.virtual_loop import run


def test_records_of_many_partitions_are_what_append_would_make() -> None:
    """They are made by position; a field that is added must not shift the others, nor be forgotten."""
    clock = SimulatedClock()

    async def made() -> tuple[list[Record], list[Record]]:
        together, alone = MemoryJournal(7, clock), MemoryJournal(7, clock)
        columns = PartitionColumns(
            ["t"], [3], ["OfflinePartition"], ["OnlinePartition"], [2], [5], [(2, 1)], [(2, 1, 4)], [9], [6], [1]
        )
        together.append_partitions("partition", columns, detail="why")
        fields = {name: column[0] for name, column in columns._asdict().items()}
        alone.append("partition", **fields, detail="why")
        return together.records, alone.records

    together, alone = run(made())
    assert together == alone
