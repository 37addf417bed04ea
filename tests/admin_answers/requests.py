"""Every scenario, in the order in which they are played."""

from __future__ import annotations

from tests.admin_answers import moves, settings, topics, users, forwarding, quotas, nodes  # isort: skip
from tests.admin_answers.registry import SCENARIOS

DELETION_DISABLED = [
    each._replace(name=f"{each.name or 'some'}, deletion disabled")
    for each in SCENARIOS
    if each.api is topics.D and not each.name.startswith(("and made", "while", "not in time", "throttled", "forwarded"))
]
"""What is asked of clusters that forbid deletion."""

__all__ = ["DELETION_DISABLED", "SCENARIOS", "forwarding", "moves", "nodes", "quotas", "settings", "topics", "users"]
