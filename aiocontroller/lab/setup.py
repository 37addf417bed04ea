"""What pyproject.toml cannot state of aiocontroller-lab: its version, and that it requires the same aiocontroller."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

_CONTROLLER = Path(__file__).resolve().parents[2] / "pyproject.toml"
_VERSION = tomllib.loads(_CONTROLLER.read_text(encoding="utf-8"))["project"]["version"]

setup(
    script_name="setup.py",  # which is left out of the wheel
    version=_VERSION,
    install_requires=[f"aiocontroller=={_VERSION}", "jinja2>=3.1", "rich>=13.7"],
    packages=["aiocontroller.lab", *(f"aiocontroller.lab.{name}" for name in find_packages())],
)
