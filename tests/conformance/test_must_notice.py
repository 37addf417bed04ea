"""No mapping is hollow: each test that plays one of ControllerIntegrationTest's fails with a mutant made for it.

A name that is Kafka's proves nothing.  ``pytest -m must_notice`` runs each test alone, with its mutant of
tests/mutation/kafkas.toml; a test that passes then does not check what Kafka's does.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.conformance.conftest import ROOT
from tests.conformance.kafka_map import rows
from tests.mutation.mutants import kafkas
from tests.mutation.one_mutant import ENVIRONMENT

PLAYED = [row.ours[0] for row in rows() if row.heading == "ControllerIntegrationTest"]
A_TEST_FAILED = 1
"""pytest's exit code; others say that nothing was tested."""


def test_each_of_them_has_a_mutant() -> None:
    assert sorted(name.rpartition("::")[2] for name in PLAYED) == sorted(kafkas())
    assert all(change.before != change.after for change in kafkas().values())


@pytest.mark.must_notice
@pytest.mark.timeout(240)
@pytest.mark.parametrize("test", PLAYED, ids=lambda test: test.rpartition("::test_")[2])
async def test_it_fails_with_its_mutant(test: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.mutation.one_mutant", "-q", "-x", "--no-header", test]
    child = await asyncio.create_subprocess_exec(
        *command,
        "-p",
        "no:cacheprovider",
        cwd=ROOT,
        env=os.environ | {ENVIRONMENT: test.rpartition("::")[2]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await child.communicate()
    assert child.returncode == A_TEST_FAILED, f"hollow: {kafkas()[test.rpartition('::')[2]]}\n{output.decode()[-3000:]}"
