"""Makes docs/reference/ from the code; `--check` only says whether the pages are current."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from _command_tree import commands_of  # noqa: E402

from aiocontroller.check.kinds import KINDS as FINDINGS  # noqa: E402
from aiocontroller.cli.root import root  # noqa: E402
from aiocontroller.config import OWN_PREFIX, PROPERTIES, Config, Property  # noqa: E402
from aiocontroller.controller.event_handlers import GATHERED, HANDLERS, SIGNALS, event_types  # noqa: E402
from aiocontroller.controller.kafka_controller import ELECTION_HANDLERS, RELOADS  # noqa: E402
from aiocontroller.core.event_kinds import Event, Request, Response, Signal  # noqa: E402
from aiocontroller.core.ids import Endpoint  # noqa: E402
from aiocontroller.journal.kinds import ALWAYS, KINDS  # noqa: E402
from aiocontroller.journal.records import Record  # noqa: E402
from aiocontroller.lab import pytest_plugin  # noqa: E402
from aiocontroller.lab.scenarios.verbs import VERBS  # noqa: E402
from aiocontroller.lab.testing import Faults, KafkaCluster  # noqa: E402  # the path comes first
from aiocontroller.metric_meanings import MEANINGS  # noqa: E402
from aiocontroller.metrics import rendered_name  # noqa: E402
from aiocontroller.migration.kinds import KINDS as FINDINGS_OF_MIGRATIONS  # noqa: E402
from tests.journal_calls import calls  # noqa: E402
from tests.scenario_places import verbs_by_place  # noqa: E402

TARGET = ROOT / "docs" / "reference"

PROPERTIES_HEAD = """\
# Properties

Generated from `aiocontroller/config.py` by `scripts/make-reference`; do not edit.

The names are Kafka's, so a broker's `server.properties` can be used unchanged; ours begin with `aiocontroller.`.
The process reads them once, when it starts. A *reloadable* one follows the brokers: while it is unset here, the
controller uses the value that most brokers have, even when they change it; if it is set here, it has to agree with
theirs ([operating.md](../operating.md), "Settings").

`listener.name.<listener>.<property>` sets a property for one listener: those that begin with `ssl.`,
`sasl.enabled.mechanisms`, `sasl.jaas.config`, `connections.max.reauth.ms`, `max.connections` and
`principal.builder.class`. A SASL mechanism is put before the property
(`listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config`). Environment variables set properties, too:
`AIOCONTROLLER_ZOOKEEPER_CONNECT` for `zookeeper.connect`, `AIOCONTROLLER_HTTP_PORT` for `aiocontroller.http.port`.
"""

EVENTS_HEAD = """\
# Events

Generated from `aiocontroller/core/events.py` and the tables of handlers by `scripts/make-reference`; do not edit.

Everything that happens to a controller is an event in its queue. A *signal* carries at most a name; its handler reads
ZooKeeper again, and equal signals in the queue are merged. A preempted signal is dropped, since the next term reads
everything. A *request* is always answered: with NOT_CONTROLLER when it is preempted. A *response* is a broker's answer;
a preempted response is dropped. *Controller state* is Kafka's `ControllerState`, and names the timer to which an
event's time is added.
"""


METRICS_HEAD = """\
# Metrics

Generated from `aiocontroller/metric_meanings.py` by `scripts/make-reference`; do not edit.

A metric has the name under which Kafka registers its MBean, if Kafka has it, and Prometheus sees it as the JMX
exporter's example rules for Kafka expose that MBean. Counters and `…PerSec` end in `_total`; timers and histograms have
quantiles, `_count`, `_sum`, `_min`, `_max` and `_mean`. The controller registers some metrics, such as those of a
broker, when it is elected, and removes them when it resigns. *Alert when* is a suggestion to begin with.

`GET /metrics` answers in Prometheus's text format, or in OpenMetrics if the scraper accepts it, and adds the metrics of
the process: `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`, `process_max_fds`,
`process_start_time_seconds`, `process_virtual_memory_bytes`, `python_gc_…_total` and `python_info`.
"""

CLI_HEAD = """\
# Commands

Generated from `aiocontroller/cli` by `scripts/make-reference`; do not edit.

`aiocontroller --help` and `aiocontroller COMMAND --help` print the same. Every command exits with 0 when it did what it
was asked, 1 when it could not (one line on standard error says why), and 2 for arguments or properties that are wrong.
`check` and `migration check` exit with 3 for warnings and 4 for critical findings, `move` and `roll` with 3 if they
stopped before everything was done, `run` with 128 + N if a signal N came for the second time.
"""

FINDINGS_HEAD = """\
# Findings of `aiocontroller check`

Generated from `aiocontroller/check/kinds.py` by `scripts/make-reference`; do not edit. [Checking a
cluster](../check.md) explains how it looks and what it prints.

A *critical* finding: clients are cut off or data is at risk now. A *warning*: one more failure would do that, or
something will never end by itself. A *notice* is worth knowing.

| finding | severity | what is found | what follows |
|---|---|---|---|
"""
MIGRATION_FINDINGS_HEAD = """

`aiocontroller migration check` ([leaving.md](../leaving.md)) has some of these, and its own:

| kind | severity | what | consequence |
|---|---|---|---|
"""

JOURNAL_HEAD = """\
# Journal records

Generated from `aiocontroller/journal` by `scripts/make-reference`; do not edit. [The journal](../journal.md) describes
its files and the order of records.

## Fields

Fields that do not apply are absent. All integers fit 64 bits. Fields are added, never renamed.

| field | type | meaning |
|---|---|---|
"""

TESTING_HEAD = """\
# aiocontroller.lab.testing

Generated from `aiocontroller/lab/testing.py` and `pytest_plugin.py` by `scripts/make-reference`; do not edit.
[Testing your own code](../testing-with-chaos.md) shows how these classes are used, with and without pytest.
"""

VERBS_HEAD = """\
# Scenario verbs

Generated from `aiocontroller/lab/scenarios/verbs.py` by `scripts/make-reference`; do not edit.
[Scenarios](../scenarios.md) explains the language.

The letters say where a verb is played: in **S**imulations (`aiocontroller simulate --scenario`), on real **P**rocesses
(`aiocontroller storm processes --scenario`), in **T**ranscripts (`tests/scripts`), in the **D**ifferential tests
against Kafka's own controller, and by the brokers of the **B**enchmarks. In transcripts, differential tests and
benchmarks brokers only record requests: no replica catches up before its leader asks for that (`catch-up`,
`alter-partition`).

| verb | words | what happens | played in |
|---|---|---|---|
"""


def properties_page() -> str:
    meanings = _field_docstrings("config.py", "Config")
    lines = [PROPERTIES_HEAD]
    for title, ours in (("Ours", True), ("Kafka's", False)):
        lines += [f"\n## {title}\n", "| property | default | takes | reloadable | meaning |", "|---|---|---|---|---|"]
        for name, property_ in PROPERTIES.items():
            if name.startswith(OWN_PREFIX) is ours:
                default, takes = _default(property_), _cell(property_.kind.expected)
                meaning = _meaning(name, property_, meanings)
                lines.append(f"| `{name}` | {default} | {takes} | {_reloadable(property_)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _field_docstrings(module: str, class_: str) -> dict[str, str]:
    """Return the docstring of each field of a class."""
    tree = ast.parse((ROOT / "aiocontroller" / module).read_text(encoding="utf-8"))
    config = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_)
    found = {}
    for field, after in zip(config.body, config.body[1:], strict=False):
        documents = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and documents:
            text: Any = after.value.value  # type: ignore[attr-defined]
            found[field.target.id] = " ".join(text.split())
    return found


def _meaning(name: str, property_: Property, meanings: dict[str, str]) -> str:
    if name.startswith(OWN_PREFIX) and property_.field not in meanings:
        raise SystemExit(
            f"aiocontroller/config.py: {property_.field} has no docstring, and no other documentation either"
        )
    return _cell(meanings.get(property_.field, "As Kafka documents it."))


def _reloadable(property_: Property) -> str:
    if property_.from_brokers is None:
        return ""
    return "yes" if property_.from_brokers.adopted else "no; must equal the brokers'"


def _default(property_: Property) -> str:
    value = getattr(Config(), property_.field)
    match value:
        case None | "" | ():
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{','.join(_listener(one) if isinstance(one, Endpoint) else str(one) for one in value)}`"
        case dict():
            return ""
    return f"`{value}`"


def _listener(endpoint: Endpoint) -> str:
    return f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"


def events_page() -> str:
    signals: dict[str, list[str]] = {}
    for change, make in SIGNALS.items():
        signals.setdefault(type(make("1-1" if change.name == "PARTITION_STATE" else "1")).__name__, []).append(
            change.name
        )
    lines = [EVENTS_HEAD, "| event | kind | controller state | handler | what it says |", "|---|---|---|---|---|"]
    for kind in event_types():
        text = _cell(" ".join((kind.__doc__ or "").split()))
        if kind.__name__ in signals:
            text += f" Watched: {', '.join(signals[kind.__name__])}."
        lines.append(f"| `{kind.__name__}` | {_kind(kind)} | {kind.state.name} | `{_handler(kind)}` | {text} |")
    return "\n".join(lines) + "\n"


def _kind(kind: type[Event]) -> str:
    return next(base.__name__.lower() for base in (Signal, Request, Response) if issubclass(kind, base))


def _handler(kind: type[Event]) -> str:
    if kind in RELOADS:
        return "kafka_controller.KafkaController._reload"
    handler: Any = ELECTION_HANDLERS.get(kind) or HANDLERS.get(kind) or GATHERED.get(kind)
    return f"{handler.__module__.removeprefix('aiocontroller.controller.')}.{handler.__qualname__}"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def metrics_page() -> str:
    lines = [METRICS_HEAD]
    last = None
    for (group, type_, name), meaning in MEANINGS.items():
        if (group, type_) != last:
            last = group, type_
            lines += [
                f"\n## {group}:type={type_}\n",
                "| metric | as Prometheus sees it | unit | meaning | alert when |",
            ]
            lines.append("|---|---|---|---|---|")
        rendered = rendered_name(group, type_, name, meter=name.endswith("PerSec"))
        lines.append(f"| `{name}` | `{rendered}` | {meaning.unit} | {_cell(meaning.text)} | {_cell(meaning.alert)} |")
    return "\n".join(lines) + "\n"


def journal_page() -> str:
    meanings = _field_docstrings("journal/records.py", "Record")
    carried = {*ALWAYS, *(field for kind in KINDS.values() for field in kind.fields)}
    lines = [JOURNAL_HEAD.rstrip()]
    for name, type_ in get_type_hints(Record).items():
        unused = "" if name in carried else " No record of this release carries it."
        lines.append(f"| `{name}` | {_type(type_)} | {_cell(meanings[name])}{unused} |")
    lines += ["\n## Kinds\n", f"Every record has {', '.join(f'`{name}`' for name in ALWAYS)}.\n"]
    lines += ["| kind | when | carries | written by |", "|---|---|---|---|"]
    writers: dict[str, list[str]] = {}
    for call in calls(ROOT / "aiocontroller"):
        for kind in call.kinds:
            writers.setdefault(kind, []).append(call.module)
    for name, kind in KINDS.items():
        fields = [f"`{field}`" + (f": {text}" if text else "") for field, text in kind.fields.items()]
        modules = [f"`{module}`" for module in dict.fromkeys(writers.get(name, ["journal/records.py"]))]
        lines.append(f"| `{name}` | {_cell(kind.when)} | {_cell('; '.join(fields))} | {', '.join(modules)} |")
    return "\n".join(lines) + "\n"


def findings_page() -> str:
    rows = (
        f"| `{kind.name}` | {kind.severity.name.lower()} | {_cell(kind.title)} | {_cell(kind.consequence)} |"
        for kind in sorted(FINDINGS.values(), key=lambda kind: -kind.severity)
    )
    of_migrations = (
        f"| `{kind.name}` | {kind.severity.name.lower()} | {_cell(kind.title)} | {_cell(kind.consequence)} |"
        for kind in sorted(FINDINGS_OF_MIGRATIONS.values(), key=lambda kind: -kind.severity)
        if kind.name not in FINDINGS
    )
    return FINDINGS_HEAD + "\n".join(rows) + MIGRATION_FINDINGS_HEAD + "\n".join(of_migrations) + "\n"


def _type(type_: Any) -> str:
    name = getattr(type_, "__name__", str(type_)) if get_origin(type_) is None else str(type_)
    known = {"int": "integer", "str": "text", "Any": "any"}
    (first, *_) = [str(each) for each in get_args(type_)] or [name]
    if "Sequence" in name:
        return "integers"
    return known[first.removeprefix("<class '").removesuffix("'>").removeprefix("typing.")]


def cli_page() -> str:
    lines = [CLI_HEAD, "| command | |", "|---|---|"]
    commands = list(commands_of(root, "aiocontroller"))
    lines += [f"| [`{path}`](#{path.replace(' ', '-')}) | {_first_line(command)} |" for path, command in commands]
    for path, command in commands:
        context = click.Context(command, info_name=path)
        lines += [
            f"\n## {path}\n",
            f"    {' '.join([path, *command.collect_usage_pieces(context)])}\n",
            *_help(command),
        ]
        options = [each for each in command.params if isinstance(each, click.Option)]
        lines += ["| option | default | meaning |", "|---|---|---|"] if options else []
        lines += [_option(option, context) for option in options]
    return "\n".join(lines) + "\n"


def _first_line(command: click.Command) -> str:
    return _cell((command.help or "").partition("\n")[0])


def _help(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of a command's help; those marked for click with \\b become blocks of code."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield "\n".join(f"    {line}" for line in paragraph.splitlines()[1:]) + "\n"
        else:
            yield paragraph + "\n"


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if not option.help:
        raise SystemExit(f"aiocontroller/cli: {option.opts[0]} of {context.info_name} has no help")
    number = isinstance(option.type, click.IntRange | click.FloatRange) and option.metavar is None
    takes = "" if option.is_flag else f" {'NUMBER' if number else option.make_metavar(context)}"
    default = option.get_default(context)
    shown = f"`{default}`" if option.show_default and default is not None else ""
    return f"| {names}{_cell(takes)} | {shown} | {_cell(' '.join(option.help.split()))} |"


def testing_page() -> str:
    lines = [TESTING_HEAD]
    for class_ in (KafkaCluster, Faults):
        lines += [
            f"\n## {class_.__name__}\n",
            f"`{class_.__name__}{_signature(class_)}`\n",
            inspect.getdoc(class_) or "",
        ]
        lines += ["\n| | |", "|---|---|"]
        for name, member in vars(class_).items():
            if not name.startswith("_"):
                lines.append(f"| `{name}{_signature(member)}` | {_documented(class_, name)} |")
    lines += ["\n## With pytest\n", inspect.getdoc(pytest_plugin) or ""]
    return "\n".join(lines).replace("``", "`") + "\n"


def _signature(member: Any) -> str:
    """Return a function's arguments and result as they are written, without ``self``; of a property, the result."""
    if isinstance(member, property):
        return f" → {inspect.signature(member.fget).return_annotation}"  # type: ignore[arg-type]
    signature = inspect.signature(member)
    arguments = [_argument(name, each) for name, each in signature.parameters.items() if name != "self"]
    named = [each.kind is each.KEYWORD_ONLY for name, each in signature.parameters.items() if name != "self"]
    if True in named and not any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values()):
        arguments.insert(named.index(True), "*")
    result = "None" if isinstance(member, type) else signature.return_annotation
    return _cell(f"({', '.join(arguments)})" + ("" if result == "None" else f" → {result}"))


def _argument(name: str, argument: inspect.Parameter) -> str:
    star = "*" if argument.kind is argument.VAR_POSITIONAL else ""
    default = "" if argument.default is argument.empty else f" = {argument.default!r}"
    return f"{star}{name}: {argument.annotation}{default if len(default) < 60 else ' = …'}"


def _documented(class_: type, name: str) -> str:
    text = " ".join((inspect.getdoc(getattr(class_, name)) or "").split())
    if not text:
        raise SystemExit(f"aiocontroller/lab/testing.py: {class_.__name__}.{name} has no docstring")
    return _cell(text)


def verbs_page() -> str:
    lines = [VERBS_HEAD.rstrip()]
    playing = verbs_by_place()
    for verb in VERBS.values():
        letters = "".join(letter for letter, verbs in playing.items() if verb.name in verbs)
        lines.append(f"| `{verb.name}` | {verb.shape.shown} | {verb.meaning} | {letters} |")
    return "\n".join(lines) + "\n"


def pages() -> Iterator[tuple[Path, str]]:
    yield TARGET / "properties.md", properties_page()
    yield TARGET / "events.md", events_page()
    yield TARGET / "metrics.md", metrics_page()
    yield TARGET / "commands.md", cli_page()
    yield TARGET / "journal.md", journal_page()
    yield TARGET / "findings.md", findings_page()
    yield TARGET / "testing.md", testing_page()
    yield TARGET / "scenario-verbs.md", verbs_page()


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(f"found {' '.join(arguments)}, expected --check or nothing", file=sys.stderr)
        return 2
    old = [path for path, text in pages() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if arguments:
        for path in old:
            print(f"{path.relative_to(ROOT)} is not current: run scripts/make-reference", file=sys.stderr)
        return 1 if old else 0
    TARGET.mkdir(exist_ok=True)
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
