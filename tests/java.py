"""Runs Java programs for tests: single source files that a JDK compiles when it starts them, with a release's jars."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from aiocontroller.java import JavaMissingError, find_java
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, KafkaMissingError, kafka_jars, kafka_missing


def java_program(source: Path, *, version: str = DEFAULT_VERSION, heap_mb: int = 256) -> list[str]:
    """Return the command that runs ``source`` with Kafka's classes; skip the test if a JDK or the jars are missing."""
    try:
        java = find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=30, check=False).stdout
    if "jdk.compiler@" not in modules:
        pytest.skip(f"{java} has no compiler: a JDK is needed to ask Kafka's own classes")
    missing = kafka_missing(version)
    if missing:
        pytest.skip(missing)
    try:
        jars = kafka_jars(version)
    except KafkaMissingError as error:
        pytest.skip(str(error))
    return [str(java), f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(source)]


def answers(command: list[str], questions: Iterable[str], timeout_s: float = 200) -> list[str]:
    """Run the command; return a line of its standard output for each question, a line of its standard input."""
    asked = list(questions)
    run = subprocess.run(
        command, input="".join(f"{q}\n" for q in asked).encode(), capture_output=True, timeout=timeout_s, check=False
    )
    lines = run.stdout.decode().split("\n")[:-1]  # an answer may contain other line ends
    assert len(lines) == len(asked), run.stderr[-2000:].decode()
    return lines
