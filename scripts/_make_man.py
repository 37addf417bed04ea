"""Makes distribution/share from the commands: the manual page and the completion scripts for shells.

`--check` only says whether they are current.  A wheel installs them where `man` and shells look.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from _command_tree import commands_of  # noqa: E402

from aiocontroller.cli.completion import script  # noqa: E402
from aiocontroller.cli.root import root  # noqa: E402  # the path comes first

SHARE = ROOT / "distribution" / "share"
COMPLETIONS = {
    "bash": "bash-completion/completions/aiocontroller",
    "zsh": "zsh/site-functions/_aiocontroller",
    "fish": "fish/vendor_completions.d/aiocontroller.fish",
}
END = """\
.SH EXIT STATUS
.TP
.B 0
It did what it was asked.
.TP
.B 1
It could not; one line on standard error says why.
.TP
.B 2
An argument or a property is wrong.
.TP
.BR 3 ", " 4
.B check
and
.B migration check
found warnings, or something critical;
.B move
and
.B roll
stopped before everything was done (3).
.TP
.RI 128+ N
A signal
.I N
came for the second time
.RB ( run ).
.SH ENVIRONMENT
Any property can be set by a variable:
.B AIOCONTROLLER_ZOOKEEPER_CONNECT
for
.BR zookeeper.connect ,
.B AIOCONTROLLER_HTTP_PORT
for
.BR aiocontroller.http.port .
"""


def manual() -> str:
    """Return the page, in the macros of man(7)."""
    top = click.Context(root, info_name="aiocontroller", **root.context_settings)
    _, *rest = _paragraphs(root)
    lines = [
        '.\\" Written by scripts/make-reference from the commands; do not edit.',
        f'.TH AIOCONTROLLER 1 "" "aiocontroller {version("aiocontroller")}"',
        ".SH NAME",
        f"aiocontroller \\- {_name(root)}",
        ".SH SYNOPSIS",
        ".B aiocontroller",
        ".RI [ options ]",
        ".I command",
        ".RI [ arguments ]",
        ".SH DESCRIPTION",
        *rest,
        ".SH OPTIONS",
        *_options(root, top),
        ".SH COMMANDS",
    ]
    for path, command in commands_of(root, "aiocontroller"):
        context = click.Context(command, parent=top, info_name=path)
        lines += [f'.SS "{_plain(path)}"', f"\\fB{_plain(path)}\\fR {_plain(_usage(command, context))}"]
        for paragraph in _paragraphs(command):
            lines += [".PP", paragraph]
        lines += _options(command, context)
    return "\n".join(lines) + "\n" + END


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join(command.collect_usage_pieces(context))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f"\\fB{_plain(record[0])}\\fR", _plain(" ".join(record[1].split())))


def _paragraphs(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of a command's help; those marked for click with \\b keep their line breaks."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield "\n".join([".nf", *map(_plain, paragraph.splitlines()[1:]), ".fi"])
        else:
            yield _plain(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    """Escape the text so that roff shows it unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text.startswith((".", "'")) else text


def _name(command: click.Command) -> str:
    """Return the first sentence of a command's help, in the form for an index of manual pages."""
    sentence = " ".join((command.help or "").partition("\n\n")[0].split()).rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file of ``distribution/share`` with its text."""
    yield SHARE / "man" / "man1" / "aiocontroller.1", manual()
    for shell, place in COMPLETIONS.items():
        yield SHARE / place, script(shell) + "\n"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(f"found {' '.join(arguments)}, expected --check or nothing", file=sys.stderr)
        return 2
    old = [(path, text) for path, text in files() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path, text in old:
        if arguments:
            print(f"{path.relative_to(ROOT)} is not current: run scripts/make-reference", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if old and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
