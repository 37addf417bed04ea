"""Counts with their nouns, and what others wrote."""

from __future__ import annotations

from aiocontroller.core.text import as_a_name, brokers_named, not_registered, on_one_line, plural, printable

HOSTILE = "\x1b[2J\x07\u202e\x9b\x7f\u200b\u2028\r"
ESCAPED = r"\x1b[2J\x07\u202e\x9b\x7f\u200b\u2028\r"


def test_a_noun_has_an_s_unless_there_is_one() -> None:
    assert [plural(n, "topic") for n in (0, 1, 2, 1234)] == ["0 topics", "1 topic", "2 topics", "1,234 topics"]


def test_one_broker_is_and_several_are() -> None:
    assert [brokers_named(ids) for ids in ((1,), (1, 2))] == ["broker 1", "brokers 1, 2"]
    assert not_registered([1]) == "broker 1 has replicas and is not registered"
    assert not_registered((1, 2, 3)) == "brokers 1, 2, 3 have replicas and are not registered"


def test_what_others_wrote_gives_a_terminal_no_orders() -> None:
    assert printable(f"a{HOSTILE}\nb") == f"a{ESCAPED}\nb"
    assert printable("größer → Ω") == "größer → Ω"
    assert printable("\udc80") == r"\udc80"


def test_what_others_wrote_begins_no_line() -> None:
    assert on_one_line(f"a\n{HOSTILE}\n") == rf"a\n{ESCAPED}\n"
    assert on_one_line("größer → Ω") == "größer → Ω"


def test_a_name_is_in_quotes_where_it_could_pass_for_words() -> None:
    assert [as_a_name(name) for name in ("orders-0", "User:ANONYMOUS", "größer", "a b", "a,b", 'a"', "a\n")] == [
        "orders-0", "User:ANONYMOUS", "größer", '"a b"', '"a,b"', r'"a\""', r'"a\n"'
    ]  # fmt: skip
