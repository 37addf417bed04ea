"""Every API by every principal on every listener: a real broker and the controller answer the same.

pytest -m authorization                                  the whole table
pytest tests/authorization                               the short form, as in CI
… --authorization-report FILE                            what is not explained, by API and field

docs/authorization.md says what is compared, and how a difference is explained.
"""

from __future__ import annotations

import pytest

from aiocontroller.wire.apis import ApiKey
from tests.authorization.report import Verdict, of_api, unexplained_by_api

pytestmark = [
    pytest.mark.authorization,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),  # the first of them plays the whole table
    pytest.mark.asyncio(loop_scope="package"),
]


async def test_the_controller_outlives_the_table(verdict: Verdict) -> None:
    assert verdict.table.stage.ours_runs, verdict.table.stage.our_log.read_text()[-4000:]


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
async def test_answers_are_a_brokers(verdict: Verdict, api: ApiKey) -> None:
    asked = [place for place in verdict.table.places if place.ask.api == api]
    assert asked
    found = unexplained_by_api(verdict.unexplained).get(api, [])
    if found:
        pytest.fail("\n".join(of_api(found)), pytrace=False)


async def test_unsupported_requests_are_refused_alike(verdict: Verdict) -> None:
    strange = {api: found for api, found in unexplained_by_api(verdict.unexplained).items() if api not in set(ApiKey)}
    if strange:
        pytest.fail("\n".join(line for found in strange.values() for line in of_api(found)), pytrace=False)


async def test_every_explanation_is_needed(verdict: Verdict) -> None:
    assert [str(allowance) for allowance in verdict.unused] == []
