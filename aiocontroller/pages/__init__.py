"""Makes HTML pages of one file each, which loads nothing.  ``base.html`` is their frame, ``base.css`` their style.

A page is a Jinja template that extends ``base.html``, in the folder of the program that makes it, with a ``.css`` file
of the same name if it needs more style.  Values are escaped, and an unknown name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_HERE: Final = Path(__file__).parent
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that have no place in HTML, or that hide or reorder the text around them."""


class Column(NamedTuple):
    """A column of ``table`` in ``tables.html``; the first column of a table is the heading of its row."""

    heading: str
    cell: Callable[[Any], object]
    """Row -> content; text is escaped."""
    style: str = ""
    """A class of the style sheet: ``n`` for numbers, ``words`` for sentences, ``time``."""

    @property
    def attributes(self) -> Markup:
        """The cells' HTML attributes with a leading space; empty without a style."""
        return Markup(' class="{}"').format(self.style) if self.style else Markup("")


def columns(*headings: str) -> list[Column]:
    """For rows that are sequences: the first column holds names, the others numbers."""
    return [Column(heading, lambda row, i=i: row[i], "n" if i else "") for i, heading in enumerate(headings)]  # type: ignore[misc]


def render(template: Path, **values: Any) -> str:
    """Return the document that the template makes of the values, ``headline`` among them.

    Invisible characters are shown as ``\\u202e``: a name from outside must not change how the text after it reads.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sheets = [_HERE / "base.css", template.with_suffix(".css")]
    css = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets if sheet.is_file())
    document = environment.get_template(template.name).render(css=Markup(css), **values)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
