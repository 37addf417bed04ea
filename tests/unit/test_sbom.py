"""The lock file of a plain install agrees with pyproject.toml and with the environment that was tested; the bill of
materials and the licences agree with the lock file."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from typing import Any

import pytest

from tests.unit.generated_pages import ROOT, make

LOCK = (ROOT / "distribution" / "plain.txt").read_text(encoding="utf-8")
BILL: dict[str, Any] = json.loads((ROOT / "distribution" / "sbom.cdx.json").read_bytes())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="licences are those of what Python 3.11 installs")
def test_they_are_current() -> None:
    checked = make("_make_sbom.py", "--check")
    assert checked.returncode == 0, checked.stderr


def test_unknown_arguments_are_refused() -> None:
    assert make("_make_sbom.py", "--chek").returncode == 2


def test_the_lock_has_what_pyproject_requires() -> None:
    """If this fails, run scripts/lock."""
    wanted = {re.match(r"[a-z0-9-]+", each)[0] for each in PROJECT["dependencies"]}  # type: ignore[index]
    ours = f"pkg:pypi/aiocontroller@{PROJECT['version']}"
    assert BILL["metadata"]["component"]["bom-ref"] == ours
    [direct] = [each["dependsOn"] for each in BILL["dependencies"] if each["ref"] == ours]
    assert {re.fullmatch(r"pkg:pypi/(.+)@.+", each)[1] for each in direct} == wanted  # type: ignore[index]


def test_what_is_locked_is_what_was_tested() -> None:
    """Each entry is also in the lock file of the tests' environment, with the same hashes."""
    tested = set(entries((ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")))
    found = entries(LOCK)
    assert len(found) > 15
    assert [entry[0] for entry in found if entry not in tested] == []


def entries(text: str) -> list[tuple[str, ...]]:
    """Return (``name==version``, hash, …) of each entry."""
    parts = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    return [(part.split()[0], *sorted(re.findall(r"sha256:[0-9a-f]{64}", part))) for part in parts if "==" in part[:80]]


def test_each_component_can_be_checked_and_reached() -> None:
    refs = {each["bom-ref"] for each in BILL["components"]}
    assert len(refs) == len(BILL["components"]) == len(entries(LOCK))
    for each in BILL["components"]:
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["hashes"]
        assert all(re.fullmatch("[0-9a-f]{64}", found["content"]) for found in each["hashes"])
        assert each["licenses"][0]["expression"]
    required = {on for each in BILL["dependencies"] for on in each["dependsOn"]}
    assert required == refs
