"""The pages of diagrams: `_make_diagrams.py` writes them, `--check` says whether they are current."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from enum import IntEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import _sequences as sequences  # noqa: E402

from aiocontroller.controller.failover import FAILOVER  # noqa: E402
from aiocontroller.controller.warm_failover import WARM_FAILOVER  # noqa: E402
from aiocontroller.core.states import (  # noqa: E402  # the path comes first
    VALID_PREVIOUS_PARTITION_STATES,
    VALID_PREVIOUS_REPLICA_STATES,
    PartitionState,
    ReplicaState,
)

STATE_MACHINES = ROOT / "docs" / "state-machines.md"
SEQUENCES = ROOT / "docs" / "sequences.md"

# What entering a state does; a test fails when a state has no words here.
PARTITION_STATES = {
    PartitionState.NewPartition: "Known, with an assignment, never led. Memory only.",
    PartitionState.OnlinePartition: "Led. From New: the first live replica leads, all live ones are in sync, the state "
    "znode is created. From Offline or Online: an election by one of the four strategies, written on condition of the "
    "znode's version. LeaderAndIsr to the replicas concerned, UpdateMetadata to all brokers.",
    PartitionState.OfflinePartition: "Its leader is gone. Memory only; a leader of -1 is written when the replica goes "
    "offline.",
    PartitionState.NonExistentPartition: "Not yet known, or being deleted. Memory only.",
}
REPLICA_STATES = {
    ReplicaState.NewReplica: "The broker may create it: LeaderAndIsr with *is new* where the partition has leadership; "
    "refused for the leader.",
    ReplicaState.OnlineReplica: "LeaderAndIsr to its broker where the partition has leadership, unless it comes from "
    "New.",
    ReplicaState.OfflineReplica: "StopReplica without deletion; taken out of the ISR (the last member stays), leader "
    "-1 if it led; LeaderAndIsr to the others.",
    ReplicaState.ReplicaDeletionStarted: "StopReplica with deletion.",
    ReplicaState.ReplicaDeletionSuccessful: "The broker has deleted it. Memory only.",
    ReplicaState.ReplicaDeletionIneligible: "Cannot be deleted now: its broker or log directory is gone, or deleting "
    "it failed. Memory only.",
    ReplicaState.NonExistentReplica: "Out of the assignment in memory.",
}

HEAD = """\
# The state machines and the failover

Generated from the tables in `aiocontroller/core/states.py` and `aiocontroller/controller/failover.py` by
`scripts/make-diagrams`; do not edit. States, byte values and steps are Kafka's (`PartitionStateMachine`,
`ReplicaStateMachine`). A step that is not drawn is refused, reported with subject, state and target, and changes
nothing.
"""


FAILOVER_WORDS = """\
`on_controller_failover` in `aiocontroller/controller/failover.py`, drawn from its table. Every step leaves a journal
record of kind `failover` with its duration. A step that finds the fence gone ends the term, wherever it is; the next
term begins at the first step."""
WARM_WORDS = """\
The same for a standby that has kept a copy of the cluster (`aiocontroller/controller/warm_failover.py`). The last step
begins what is done afterwards between other events: all brokers are sent everything. Everything small that the steps
need is read at the start, in one go; each step takes its part when it is its turn."""


def diagram(table: Mapping[IntEnum, Set[IntEnum]], start: IntEnum) -> str:
    """A mermaid state diagram, steps in order of the states they leave."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.name}"]
    for before in type(start):
        lines += [f"    {before.name} --> {after.name}" for after in type(start) if before in table[after]]
    return "\n".join([*lines, "```"])


def matrix(table: Mapping[IntEnum, Set[IntEnum]], states: type[IntEnum]) -> str:
    """The same as a table: rows leave, columns enter."""
    lines = ["| from \\ to |" + "".join(f" {s.name} |" for s in states), "|---|" + "---|" * len(states)]
    for before in states:
        marks = "".join(" yes |" if before in table[after] else " · |" for after in states)
        lines.append(f"| **{before.name}** |{marks}")
    return "\n".join(lines)


def words(meanings: Mapping[IntEnum, str], states: type[IntEnum]) -> str:
    lines = ["| state | byte | on entering it |", "|---|---|---|"]
    lines += [f"| {s.name} | {int(s)} | {meanings[s]} |" for s in states]
    return "\n".join(lines)


def section(title: str, table: Mapping[IntEnum, Set[IntEnum]], meanings: Mapping[IntEnum, str], start: IntEnum) -> str:
    states = type(start)
    return "\n\n".join([f"## {title}", diagram(table, start), words(meanings, states), matrix(table, states)])


def failover(title: str, table: Sequence[tuple[str, object]], about: str) -> str:
    """The steps of a failover, one below the other."""
    steps = [name for name, _ in table]
    lines = ["```mermaid", "flowchart TD", "    won([won the role]) --> s1"]
    lines += [f'    s{n}["{n}. {name}"]' for n, name in enumerate(steps, 1)]
    lines += [f"    s{n} --> s{n + 1}" for n in range(1, len(steps))]
    lines += [f"    s{len(steps)} --> ready([active])", "```"]
    return "\n".join([f"## {title}", "", about, "", *lines])


def page() -> str:
    return "\n".join(
        [
            HEAD,
            section(
                "Partitions",
                VALID_PREVIOUS_PARTITION_STATES,  # type: ignore[arg-type]  # Mapping is invariant in its key
                PARTITION_STATES,  # type: ignore[arg-type]
                PartitionState.NonExistentPartition,
            ),
            "",
            section(
                "Replicas",
                VALID_PREVIOUS_REPLICA_STATES,  # type: ignore[arg-type]
                REPLICA_STATES,  # type: ignore[arg-type]
                ReplicaState.NonExistentReplica,
            ),
            "",
            failover("Failover", FAILOVER, FAILOVER_WORDS),
            "",
            failover("Warm failover", WARM_FAILOVER, WARM_WORDS),
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: scripts/make-diagrams [--check]", file=sys.stderr)
        return 2
    wanted = {STATE_MACHINES: page(), SEQUENCES: sequences.page()}
    old = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if arguments:
        for path in old:
            print(f"{path.relative_to(ROOT)} is not current: run scripts/make-diagrams", file=sys.stderr)
        return 1 if old else 0
    for path in old:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
