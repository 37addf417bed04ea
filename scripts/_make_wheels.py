"""Builds wheels from the checkout: `_make_wheels.py OUT`; with `--all` also those of laboratory and pipeline.

Builds of one commit are reproducible, byte for byte, on any machine and by any user:
 * sources are copied first, with fixed modes, into a fresh folder;
 * times are SOURCE_DATE_EPOCH, or the commit's time if that is not set;
 * the build tools are locked (requirements/build.txt).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = {"controller": ".", "laboratory": "aiocontroller/lab", "pipeline": "aiocontroller/analytics"}
WITHOUT_GIT_S = "315532800"
"""The earliest time that a zip file can store."""


def copy_sources(target: Path) -> None:
    """Copy what wheels are built from, with modes that do not depend on the umask at the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "aiocontroller", target / "aiocontroller", ignore=ignored)
    shutil.copytree(ROOT / "distribution" / "share", target / "distribution" / "share")
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def source_date_epoch() -> str:
    """Return the time for all files, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or WITHOUT_GIT_S


def build(out: Path, projects: list[str]) -> None:
    """Build these of ``PROJECTS`` into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date_epoch(), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    command += ["--no-index", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(out)]
    os.umask(0o022)  # for the files that setuptools writes
    with tempfile.TemporaryDirectory() as folder:
        copy_sources(Path(folder))
        for name in projects:
            subprocess.run([*command, str(Path(folder, PROJECTS[name]))], env=environment, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/make-wheels", description="Build wheels, the same bytes each time.")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the wheels")
    parser.add_argument("--all", action="store_true", help="also those of the laboratory and the pipeline")
    given = parser.parse_args()
    try:
        build(given.out, list(PROJECTS) if given.all else ["controller"])
    except subprocess.CalledProcessError as error:
        sys.exit(f"pip ended with {error.returncode}; it says why above.")
    for wheel in sorted(given.out.glob("aiocontroller*.whl")):
        print(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel}")


if __name__ == "__main__":
    main()
