"""What a person reads fits the terminal, nothing of it is lost, and a program reads it as it comes."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.cli import fitting, output

AT = "2024-05-01T12:00:00.123Z"
HEADINGS = ("broker", "state", "leaders", "remarks")
ROWS = (("1", "live", "12", "-"), ("20", f"gone since {AT}", "0", "1 replica on failed log directories"))
RIGHT = (True, False, True, False)
numbers = st.text("123,.", max_size=30)
words = st.lists(st.text("ab-,;7", min_size=1, max_size=30), max_size=8).map(" ".join)


def too_wide(text: str, width: int) -> list[str]:
    """Lines that are, though they could be broken."""
    return [line for line in text.split("\n") if len(line) > width and " " in line.strip()]


def test_a_table_that_fits_is_as_it_is() -> None:
    wide = fitting.table(HEADINGS, ROWS, RIGHT, None)
    assert fitting.table(HEADINGS, ROWS, RIGHT, max(map(len, wide.splitlines()))) == wide
    assert wide.splitlines()[0].startswith("broker  state  ")


def test_a_cell_goes_on_below_itself() -> None:
    assert fitting.table(HEADINGS, ROWS, RIGHT, 80).splitlines() == [
        "broker  state                                leaders  remarks",
        "     1  live                                      12  -",
        "    20  gone since 2024-05-01T12:00:00.123Z        0  1 replica on failed log",
        "                                                      directories",
    ]


def test_the_last_columns_stand_below_each_row_with_their_names_where_they_have_something_to_say() -> None:
    assert fitting.table(HEADINGS, ROWS, RIGHT, 45).splitlines() == [
        "broker  state                         leaders",
        "     1  live                               12",
        "    20  gone since                          0",
        "        2024-05-01T12:00:00.123Z",
        "    remarks: 1 replica on failed log",
        "    directories",
    ]


def test_a_time_with_its_sign_is_not_broken() -> None:
    table = fitting.table(("topic", "since", "reason"), (("t" * 40, f"< {AT}", "dead"),), (False,) * 3, 60)
    assert table.splitlines() == ["topic", "t" * 40, f"    since: < {AT}; reason: dead"]


@given(st.lists(st.tuples(numbers, words, numbers, words), max_size=4), st.integers(20, 120))
def test_no_table_is_too_wide_and_no_word_is_lost(rows: list[tuple[str, ...]], width: int) -> None:
    table = fitting.table(HEADINGS, rows, RIGHT, width)
    assert too_wide(table, width) == []
    shown_words = table.replace(";", " ").split()
    for row in rows:
        for text in row:
            assert text == fitting.NONE or not set(text.replace(";", " ").split()).difference(shown_words)


@given(words, st.sampled_from(["", "  ", "    - ", f"  {AT}  "]), st.integers(30, 120))
def test_no_sentence_is_too_wide_and_none_loses_a_word(text: str, before: str, width: int) -> None:
    line = before + text
    found = fitting.sentences(line, width)
    assert too_wide(found, width) == []
    assert found.split() == line.split()
    assert len(line) > width or found == line


def test_a_sentence_goes_on_below_its_beginning() -> None:
    assert fitting.sentences(f"{AT}  broker 3 died: 1 leader elected", 56).splitlines() == [
        f"{AT}  broker 3 died: 1 leader",
        " " * 26 + "elected",
    ]
    assert fitting.sentences("    - orders-0: broker 3 is dead", 24).splitlines() == [
        "    - orders-0: broker 3",
        "      is dead",
    ]


def test_json_that_is_too_long_goes_on_after_a_comma() -> None:
    """Evidence of ``check`` is as it stands in ZooKeeper, where Kafka writes no blanks."""
    found = '{"version":1,"brokerid":1001,"timestamp":"1700000000000"}'
    assert fitting.sentences(f"  see: /controller (zxid 0x7) {found}", 40).splitlines() == [
        "  see: /controller (zxid 0x7)",
        '  {"version":1,"brokerid":1001,',
        '  "timestamp":"1700000000000"}',
    ]
    assert fitting.lines_of('{"version":1}', 20) == ['{"version":1}']
    assert fitting.lines_of("[1001,1002,1003]", 11) == ["[1001,1002,", "1003]"]


def test_a_name_with_commas_stays_whole() -> None:
    assert fitting.lines_of("broker 1001,1002,1003", 9) == ["broker", "1001,1002,1003"]


def test_the_width_is_that_of_the_terminal_and_none_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 61, 0, 0))
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "__stdout__", terminal)
        assert output.terminal_width() == 61
        assert output.table(("a", "b"), [("x" * 30, "y " * 30)]).count("\n") > 1
        monkeypatch.setenv("COLUMNS", "72")
        assert output.terminal_width() == 72
    with open(os.devnull, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert output.terminal_width() is None


def test_a_number_that_is_not_known_leaves_a_column_to_the_right() -> None:
    assert output.table(("requests",), [(7,), (None,)]).splitlines() == ["requests", "       7", "       -"]
