"""The pages under docs/reference are made from the code, and are complete."""

from __future__ import annotations

import ast
import re

from aiocontroller.cli.root import COMMANDS
from aiocontroller.config import PROPERTIES
from aiocontroller.controller.event_handlers import event_types
from aiocontroller.core.event_kinds import ControllerState
from aiocontroller.journal.journal import JournalStatistics
from aiocontroller.journal.kinds import KINDS
from aiocontroller.journal.records import Record
from aiocontroller.lab.testing import Faults, KafkaCluster
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metric_meanings import MEANINGS
from tests.unit.controller.virtual_cluster import is_active, stage
from tests.unit.generated_pages import ROOT, make

REFERENCE = ROOT / "docs" / "reference"


def test_the_pages_are_current() -> None:
    checked = make("_make_reference.py", "--check")
    assert checked.returncode == 0, checked.stderr


def test_every_property_and_every_event_is_there() -> None:
    properties = (REFERENCE / "properties.md").read_text(encoding="utf-8")
    events = (REFERENCE / "events.md").read_text(encoding="utf-8")
    for name in PROPERTIES:
        assert f"\n| `{name}` |" in properties
    for kind in event_types():
        assert f"\n| `{kind.__name__}` |" in events


def test_every_command_and_every_method_of_a_test_cluster_is_there() -> None:
    commands = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"\n## aiocontroller {name}" in commands
    testing = (REFERENCE / "testing.md").read_text(encoding="utf-8")
    for class_ in (KafkaCluster, Faults):
        for name in vars(class_):
            assert name.startswith("_") or f"\n| `{name}" in testing


def test_every_field_and_kind_of_journal_records_is_there() -> None:
    journal = (REFERENCE / "journal.md").read_text(encoding="utf-8")
    for name in (*Record.__struct_fields__, *KINDS):
        assert f"\n| `{name}` |" in journal


def test_unknown_arguments_are_refused() -> None:
    assert make("_make_reference.py", "--chek").returncode == 2


def test_the_glossary_names_files_that_exist() -> None:
    """The last cell of each line names modules of the package, or pages."""
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| term"):
            where = line.split("|")[3]
            pages = re.findall(r"\]\(([^)#]+)\)", where)
            modules = re.findall(r"`([\w/.]+)`", where)
            assert pages or modules, line
            assert all((ROOT / "docs" / page).is_file() for page in pages), line
            rooms = [module.rpartition("/")[0] for module in modules if "/" in module]
            assert all((ROOT / "aiocontroller" / (m if "/" in m else f"{rooms[0]}/{m}")).exists() for m in modules), (
                line
            )


def test_the_recipes_name_files_that_exist() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+(?:/|\.py|\.md))`", text))
    assert len(named) > 15
    assert [name for name in named if not ((ROOT / name).exists() or (ROOT / "aiocontroller" / name).exists())] == []


def test_every_metric_has_a_meaning_and_every_meaning_a_metric() -> None:
    """Every name that is registered is a text in the source, or put together from one."""
    package = ROOT / "aiocontroller"
    texts = {
        node.value
        for path in package.rglob("*.py")
        if path.name != "metric_meanings.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    made = {field.title().replace("_", "") for field in JournalStatistics.__struct_fields__}
    made |= {state.timer or "" for state in ControllerState}
    made |= {f"{how}-{what}" for how in ("successful", "failed") for what in ("authentication", "reauthentication")}
    assert {name for _, _, name in MEANINGS} <= texts | made


@virtual_time
async def test_every_metric_of_a_running_controller_has_a_meaning() -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await it.add_controller()
        await it.until(lambda: is_active(service))
        assert service.metrics.names() <= MEANINGS.keys()
        assert len(service.metrics.names()) > 80
