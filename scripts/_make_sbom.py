"""Lists what a plain install consists of, from its lock file; `--check` only says whether the files are current.

distribution/sbom.cdx.json is a bill of materials (CycloneDX 1.6): each distribution with its version, the hashes of all
files that the lock allows, its licence, and what requires it.  distribution/LICENCES.md is a table of the licences for
people.  Licences are those that the installed distributions name; neither file contains a time or a random number.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "distribution"
LOCK = FOLDER / "plain.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

AS_SPDX = {
    ("aiosignal", "Apache 2.0"): "Apache-2.0",
    ("uvloop", "MIT License"): "MIT OR Apache-2.0",
}
"""(distribution, licence in its metadata) -> the SPDX expression for it."""
EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|EPL|CDDL)-")
LICENCES_HEAD = """\
# Licences of a plain install

Generated from `distribution/plain.txt` by `scripts/make-reference`; do not edit. Each distribution contains the texts
of its licences, in its folder `….dist-info`. aiocontroller itself is under Apache-2.0 and contains none of them; a
licence that imposes more duties on distributors of a changed version is marked.

| distribution | version | licence | asks more |
|---|---|---|---|
"""


class Locked(NamedTuple):
    """One entry of the lock file."""

    name: str
    version: str
    marker: str
    """The environments in which it is needed; empty: all."""
    hashes: tuple[str, ...]
    required_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> list[Locked]:
    """Parse the lock file; return the entries in its order."""
    found = []
    for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        head = re.match(r"(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?: ; (?P<marker>.+?))? \\\n", entry)
        if head is None:
            if entry.strip():
                sys.exit(f"{LOCK.name}: found {entry.splitlines()[0]!r}, expected NAME==VERSION and hashes")
            continue
        via = entry.partition("# via ")[2].strip().split(", ")
        requiring = tuple(each.partition(" ")[0] for each in via if not each.startswith("-c "))
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        found.append(Locked(head["name"], head["version"], head["marker"] or "", hashes, requiring))
    return found


def licence(name: str) -> str:
    """Return the SPDX expression that the installed distribution names; exit if there is none."""
    try:
        known = metadata(name)
    except PackageNotFoundError:
        sys.exit(f"{name} is locked and not installed here: its licence is not known")
    declared = known.get("License-Expression") or known.get("License") or ""
    found = AS_SPDX.get((name, declared), declared)
    if not EXPRESSION.fullmatch(found):
        sys.exit(f"{name}: found the licence {declared[:60]!r}, expected an SPDX expression; add it to AS_SPDX")
    return found


def component(entry: Locked) -> dict[str, Any]:
    """Return an entry's part of the bill of materials."""
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": entry.purl,
        "name": entry.name,
        "version": entry.version,
        "hashes": [{"alg": "SHA-256", "content": each} for each in entry.hashes],
        "licenses": [{"expression": licence(entry.name)}],
        "purl": entry.purl,
    }
    if entry.marker:
        made["properties"] = [{"name": "aiocontroller:marker", "value": entry.marker}]
    return made


def bill(entries: list[Locked]) -> str:
    """Return the bill of materials, in JSON."""
    own = f"pkg:pypi/{PROJECT['name']}@{PROJECT['version']}"
    requires: dict[str, list[str]] = {own: [], **{entry.purl: [] for entry in entries}}
    for entry in entries:
        for name in entry.required_by:
            for by in [own] if name == PROJECT["name"] else [each.purl for each in entries if each.name == name]:
                requires[by].append(entry.purl)
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": PROJECT["name"],
                "version": PROJECT["version"],
                "description": PROJECT["description"],
                "licenses": [{"expression": PROJECT["license"]}],
                "purl": own,
            }
        },
        "components": [component(entry) for entry in entries],
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in requires.items()],
    }
    return json.dumps(made, indent=1) + "\n"


def licences(entries: list[Locked]) -> str:
    """Return the table of licences."""
    rows = []
    for entry in entries:
        found = licence(entry.name)
        where = f" ({entry.marker})" if entry.marker else ""
        rows.append(f"| {entry.name} | {entry.version}{where} | {found} | {'✻' if COPYLEFT.search(found) else ''} |")
    return LICENCES_HEAD + "\n".join(rows) + "\n"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(f"found {' '.join(arguments)}, expected --check or nothing", file=sys.stderr)
        return 2
    entries = locked(LOCK.read_text(encoding="utf-8"))
    made = {FOLDER / "sbom.cdx.json": bill(entries), FOLDER / "LICENCES.md": licences(entries)}
    old = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in old:
        if arguments:
            print(f"{path.relative_to(ROOT)} is not current: run scripts/make-reference", file=sys.stderr)
        else:
            path.write_text(made[path], encoding="utf-8")
    return 1 if old and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
