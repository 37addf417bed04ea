"""Which releases of Kafka the scenarios run on, and what an old one cannot do (docs/releases.md has the table)."""

from __future__ import annotations

import pytest

from aiocontroller.lab.cluster.generations import GENERATIONS
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION

RELEASES = ("2.2.2", "2.4.1", "2.6.3", "2.8.2", "3.0.2", "3.3.2", "3.4.1", "3.6.2", "3.7.2", DEFAULT_VERSION)


def chosen_releases(config: pytest.Config) -> list[str]:
    """Return the releases by ``--kafka``: one, several with commas, or ``all``; without it the newest."""
    wanted = config.getoption("--kafka")
    if wanted is None:
        return [DEFAULT_VERSION]
    return list(RELEASES) if wanted == "all" else [name.strip() for name in wanted.split(",")]


def chosen_generations(config: pytest.Config) -> list[str]:
    """Return the releases that simulated brokers can play: all, those of ``--kafka`` among them, or without it two."""
    versions = [generation.version for generation in GENERATIONS.values()]
    wanted = config.getoption("--kafka")
    if wanted is None:
        return ["3.0.2", DEFAULT_VERSION]
    return versions if wanted == "all" else [name for name in chosen_releases(config) if name in versions]


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def finds_an_outside_controller(version: str) -> bool:
    """Whether a broker finds this controller when it shuts down: up to 2.8 it looks among registered brokers, and ends
    uncleanly after three tries."""
    return number(version) >= (3, 0)
