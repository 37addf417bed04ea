"""Text for people: counts with their nouns, and safe forms of text that others wrote, such as names and racks.

A terminal obeys escape sequences and writing directions, and a line break can fake a line of our output.
"""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """``1 broker``, ``2,000 brokers``; for nouns whose plural only adds an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def brokers_named(ids: Sequence[int]) -> str:
    """``broker 1`` or ``brokers 1, 2``."""
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))}"


def not_registered(ids: Sequence[int]) -> str:
    """``broker 1 has replicas and is not registered``, or the same of several brokers."""
    has, is_ = ("has", "is") if len(ids) == 1 else ("have", "are")
    return f"{brokers_named(ids)} {has} replicas and {is_} not registered"


def printable(text: str) -> str:
    """The text with all that a terminal would obey written as escapes; line breaks stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def on_one_line(text: str) -> str:
    """The printable text on one line, with line breaks as escapes."""
    return printable(text).replace("\n", "\\n")


def as_a_name(text: str) -> str:
    """The text on one line, in quotes if it has blanks, commas or quotes, so that it cannot look like our own text or
    like two names."""
    shown = on_one_line(text)
    if not any(c.isspace() or c in ',"' for c in text):
        return shown
    return '"' + shown.replace('"', '\\"') + '"'
