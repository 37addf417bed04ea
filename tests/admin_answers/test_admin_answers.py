"""Every request of administrators with every refusal: Kafka's own controller and ours answer the same.

pytest tests/admin_answers                               the short form, as in CI
pytest -m admin_answers                                  the whole table, on all releases
… --admin-answers-report FILE                            what is not explained

docs/admin-answers.md says what is compared, and how a difference is explained.
"""

from __future__ import annotations

import pytest

from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION
from tests.admin_answers.report import Verdict, listed
from tests.admin_answers.slips import unnoticed

pytestmark = [
    pytest.mark.admin_answers,
    pytest.mark.kafka,
    pytest.mark.timeout(7200),  # the first of them plays the whole table, on all releases
    pytest.mark.asyncio(loop_scope="session"),
]


async def test_answers_are_those_of_kafkas_own_controller(verdict: Verdict) -> None:
    if verdict.unexplained:
        pytest.fail("\n".join(listed(verdict.unexplained)), pytrace=False)


async def test_every_scenario_comes_to_its_end(verdict: Verdict) -> None:
    assert verdict.failed == []


async def test_every_explanation_is_needed(verdict: Verdict) -> None:
    assert [each.reason for each in verdict.unused] == []


async def test_no_field_could_be_wrong_unnoticed(verdict: Verdict) -> None:
    """Each field of each API, changed in an answer of ours, is a difference somewhere in the table.

    Older releases alone do not tell whether ours offers the right versions: those are compared on the newest.
    """
    found = unnoticed(verdict.attacks.values())
    if DEFAULT_VERSION not in verdict.attacks:
        found = [(api, field) for api, field in found if api != "API_VERSIONS"]
    assert found == []
    for name, made in verdict.attacks.items():
        assert made.caught.total() > made.slipped.total(), name
