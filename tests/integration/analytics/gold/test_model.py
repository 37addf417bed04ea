"""Partitions' histories against a slow model, over drawn histories; and cut anywhere, they are the same."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aiocontroller.analytics.dataframes import F
from aiocontroller.analytics.gold import facts, leadership
from aiocontroller.analytics.gold.windows import still_open
from tests.integration.analytics.gold import histories
from tests.integration.analytics.gold.build import frame, here

TOPICS = 40
"""Each a case of its own; a Spark job costs the same for one."""


@given(st.lists(st.integers(0, 10**6), min_size=400, max_size=900), st.floats(0, 1))
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_windows_and_churn_are_the_models_however_the_history_is_cut(
    spark: Any, choices: list[int], cut: float
) -> None:
    records = histories.history(choices, TOPICS, terms=3)
    at = int(cut * len(records))
    first, second = (leadership.rows(frame(spark, part)) for part in (records[:at], records[at:]))
    begun = here(facts.history(first).selectExpr("*", "1L AS n"))
    gone_on = here(facts.history(second, begun.where("is_last")).selectExpr("*", "1L AS n"))
    new = begun.where("NOT carried").unionByName(gone_on.where("NOT carried"))
    closed = facts.windows(new).selectExpr("topic", "unavailable", "since.ts_us AS start_us", "end_us")
    opened = still_open(gone_on.where("is_last")).selectExpr("topic", "unavailable", "since.ts_us", "NULL")
    assert {tuple(row) for row in closed.union(opened).collect()} == histories.windows(records)
    churned = (
        facts.churn(new)
        .groupBy("topic", "broker")
        .agg(F.sum("leader_changes").alias("l"), F.sum("isr_changes").alias("i"))
    )
    assert {(r[0], r[1]): (r[2], r[3]) for r in churned.collect()} == histories.churn(records)
    assert facts.findings(new).collect() == []
