"""What pyproject.toml cannot express: aiocontroller-pipeline has the checkout's version and requires its controller."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

_HERE = Path(__file__).resolve().parent
_VERSION = tomllib.loads((_HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
_LINES = (_HERE / "requirements.in").read_text(encoding="utf-8").splitlines()

setup(
    script_name="setup.py",  # which is left out of the wheel
    version=_VERSION,
    install_requires=[f"aiocontroller=={_VERSION}", *(line for line in _LINES if not line.startswith("#"))],
    packages=["aiocontroller.analytics", *(f"aiocontroller.analytics.{name}" for name in find_packages())],
)
