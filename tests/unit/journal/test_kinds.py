"""The table of kinds says what the program writes: compared with the calls in the source, and with journals."""

from __future__ import annotations

from pathlib import Path

import pytest

import aiocontroller
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.journal.kinds import ALWAYS, KINDS
from aiocontroller.journal.records import Record
from aiocontroller.lab.simulation.simulation import simulate
from tests.journal_calls import calls

PACKAGE = Path(aiocontroller.__file__).parent
IN_ANY_CASE = {"unencodable"}
"""Written by the encoder itself."""


def test_every_kind_that_is_written_stands_in_the_table_and_the_other_way_round() -> None:
    found = list(calls(PACKAGE))
    assert len(found) > 20
    assert [call for call in found if not call.kinds] == []
    assert {kind for call in found for kind in call.kinds} | IN_ANY_CASE == set(KINDS)


def test_every_field_that_is_written_stands_in_the_table_and_the_other_way_round() -> None:
    by_partition = {"partition", "isr"}
    written: dict[str, set[str]] = {}
    for call in calls(PACKAGE):
        for kind in call.kinds:
            written.setdefault(kind, set()).update(call.fields)
    for name in KINDS.keys() - by_partition - IN_ANY_CASE:
        assert set(KINDS[name].fields) == written[name], name
    for name in by_partition:  # of the columns, some are always empty
        assert set(KINDS[name].fields) <= written[name], name


def test_every_field_is_one_of_records() -> None:
    for name, kind in KINDS.items():
        assert kind.when.endswith((".", ")")), name
        assert set(kind.fields) <= set(Record.__struct_fields__) - set(ALWAYS), name


def test_journals_of_the_simulation_hold_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Record] = []
    monkeypatch.setattr(MemoryJournal, "_put", lambda journal, record: records.append(record))
    for seed in (3, 7, 11):
        simulate(seed)
    assert {"event", "elected", "loaded", "failover", "partition", "write", "request", "response"} <= {
        record.kind for record in records
    }
    for record in records:
        set_fields = {name for name in Record.__struct_fields__[len(ALWAYS) :] if getattr(record, name) is not None}
        assert set_fields <= set(KINDS[record.kind].fields), record
