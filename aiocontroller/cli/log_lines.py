"""How log records become lines: text for people, or one JSON object per line for programs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from aiocontroller.core.text import on_one_line


def formatter(log_format: str, controller_id: int) -> logging.Formatter:
    """``text`` or ``json``; each line names the controller."""
    if log_format == "json":
        return JsonLines(controller_id)
    return TextLines(f"%(asctime)s %(levelname)s [{controller_id}] %(message)s (%(name)s)")


class TextLines(logging.Formatter):
    """Puts each message on one line, since some contain text from clients; an exception follows it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record on one line."""
        record.message = on_one_line(record.message)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """Objects with ``time`` (RFC 3339, UTC), ``level``, ``controller``, ``logger``, ``message`` and, where there is
    one, ``exception``."""

    def __init__(self, controller_id: int) -> None:
        super().__init__()
        self._controller_id = controller_id

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message contains."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        texts = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            texts["exception"] = self.formatException(record.exc_info)
        line = {"controller": self._controller_id, **{name: _encodable(text) for name, text in texts.items()}}
        return msgspec.json.encode(line).decode()


def _encodable(text: str) -> str:
    """Escape lone surrogates, which a file name may contain but JSON may not."""
    return text.encode("utf-8", "backslashreplace").decode()
