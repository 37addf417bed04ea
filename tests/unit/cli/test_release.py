"""What ``aiocontroller release`` prints of what it could not do."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aiocontroller.cli import role


def test_brokers_that_still_have_something_to_delete_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is of a controller that was started before an upgrade, and knows no ``unfit``."""
    answer = {
        "id": 1_000_001,
        "epoch": 4,
        "left": ["t-0"],
        "owed": [
            {"broker": 2, "replicas": 1, "topics": ["orders"]},
            {"broker": 3, "replicas": 1200, "topics": [f"t{number}" for number in range(7)]},
        ],
        "unfit": ["broker 2 lost the role while it was deleting orders: restart it"],
        "ends_in_ms": None,
    }
    monkeypatch.setattr(role, "find_controller", lambda data: None)
    monkeypatch.setattr(role, "post_command", lambda ready, command, body: answer)
    done = CliRunner().invoke(role.release, [])
    assert done.exit_code == 0
    assert done.output == (
        "Controller 1000001 has given the role back after epoch 4.\n"
        "1 partition still with a replica on it: t-0\n"
        "Broker 2 still has 1 replica that it should have deleted, of orders.\n"
        "Broker 3 still has 1,200 replicas that it should have deleted, of t0, t1, t2, t3, t4, ….\n"
        "Note: broker 2 lost the role while it was deleting orders: restart it.\n"
    )
    assert done.exit_code == 0
