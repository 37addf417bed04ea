"""Every kind of journal record: when it is written, and which fields it carries besides those that all records have.

``docs/reference/journal.md`` is made from this table, from the fields of ``Record`` and from the calls that write each
kind.  ``tests/unit/journal/test_kinds.py`` compares the table with the calls and with journals of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from aiocontroller.journal.records import Record

ALWAYS: Final = Record.__struct_fields__[:6]
"""The fields of every record."""


class Kind(NamedTuple):
    """What the journal says with records of one kind."""

    when: str
    """When a record of this kind is written."""
    fields: Mapping[str, str]
    """The fields that it may carry, and what each means here; empty where the field's own meaning says it all."""


def _fields(names: str, **meanings: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), "") | meanings


_LEADERSHIP = "topic partition leader leader_epoch isr replicas controller_epoch partition_epoch"

KINDS: Final[Mapping[str, Kind]] = {
    "session": Kind("The ZooKeeper session changed.", _fields("", detail="the new state, such as `EXPIRED`")),
    "elected": Kind("The controller won the election.", _fields("controller_epoch")),
    "outranked": Kind(
        "State znodes hold a controller epoch above ours: the controller raises `/controller_epoch` and resigns.",
        _fields("", controller_epoch="the highest epoch found"),
    ),
    "loaded": Kind(
        "The controller has read the whole cluster.",
        _fields("partitions", brokers="the registered brokers", count="topics"),
    ),
    "failover": Kind(
        "A step of a failover is done.",
        _fields("duration_us", event="the step, as [state-machines.md](../state-machines.md) draws it"),
    ),
    "reload": Kind(
        "A step of a reload is done: the controller reads the cluster again after a handler failed.",
        _fields("duration_us", event="the step"),
    ),
    "resigned": Kind("The controller lost or gave up its role.", _fields("controller_epoch")),
    "event": Kind(
        "An event was handled. (A slice of the audit has no record, unless it fails.)",
        _fields(
            "event state queue_us processing_us",
            count="events that were handled together, if more than one",
            requested="who asked for what, in words; of clients and operators, and of what changes something",
            detail="the error, if the handler failed",
        ),
    ),
    "partition": Kind(
        "A partition changed its state or has a new leader.",
        _fields(
            f"from_state to_state recovery_state {_LEADERSHIP}",
            detail="the reason; of a leader from outside the ISR also `, eligible` if it is an eligible replica, "
            "`, complete` if its log is proven to have everything ([recovery](../recovery.md)), else `, unclean`",
        ),
    ),
    "recovery": Kind(
        "A partition without an in-sync replica, whose replicas have been asked how far their logs reach.",
        _fields(
            "topic partition leader_epoch",
            event="`evidence`: what they have reported; `elected`: the best log leads",
            leader="the leader, -1 before the election",
            replicas="brokers that have reported where their logs end",
            count="maximum number of records that the other logs hold and the leader's lacks",
            brokers="brokers that may have held more and have not answered",
            duration_us="how long the brokers were asked",
            detail="the same in words, with each log's end, what is known of the dead, and whether clients can read",
        ),
    ),
    "isr": Kind("A broker changed an ISR by AlterPartition.", _fields(_LEADERSHIP)),
    "isr_request": Kind(
        "A leader asked by AlterPartition to remove replicas from an ISR, or was refused; repetitions are left out.",
        _fields(
            "topic partition",
            broker="the leader that asked",
            broker_epoch="its incarnation",
            isr="the ISR that it asked for",
            brokers="the replicas that this removes",
            code="the error with which it was refused",
        ),
    ),
    "reassigned": Kind(
        "The reassignment of a partition is complete.",
        _fields(
            "topic partition",
            replicas="the new replicas",
            detail="`cancelled` if they are those from before a reassignment that was in progress",
        ),
    ),
    "topic_deleted": Kind("All replicas and znodes of a topic have been deleted.", _fields("topic")),
    "broker": Kind(
        "A broker started, died, changed, began its controlled shutdown or lost a log directory.",
        _fields("broker", detail="which of them"),
    ),
    "unclean_start": Kind(
        "A broker started without a controlled shutdown before, so that its logs may have lost their ends "
        "([eligible replicas](../eligible-replicas.md)).",
        _fields("broker broker_epoch"),
    ),
    "setting": Kind(
        "A setting that the controller takes from the brokers changed while it was active.",
        _fields("", detail="`name: old value -> new value`"),
    ),
    "suspicion": Kind(
        "Early detection suspected a peer, or withdrew a suspicion.",
        _fields(
            "broker broker_epoch",
            event="`suspected`; `held` (too many peers seem dead at once); `alarm` (leaders move, or the standby takes "
            "the role); `false alarm` (the suspect answers again); `heard elsewhere` (silent to us, but it answers a "
            "standby); `registration removed`",
            state="`broker` or `controller`: what the peer is",
            count="of `held`: the peers in doubt",
            partitions="of `alarm`: the partitions that the broker led or followed",
            duration_us="since the last sign of life",
            detail="`refused` or `silent`",
        ),
    ),
    "sickness": Kind(
        "A broker was judged [sick](../sick-brokers.md), or a consequence of that.",
        _fields(
            "broker broker_epoch brokers",
            event="`sick`; `held` (too many seem sick, or too often); `well again`; and, for a broker treated as sick, "
            "`relieved` (it left ISRs), `unlisted` (it is left out of the live brokers), `taken back`",
            state="how it looks: `disk`, `network in`, `network out` or `cpu`",
            partitions="of `relieved`: the ISRs that it left",
            count="of `relieved`: the leaders among them that moved",
            detail="the evidence",
        ),
    ),
    "fence": Kind(
        "The operator's [command](../early-detection.md#the-fence-command) against a broker that hangs.",
        _fields(
            "broker broker_epoch duration_us",
            event="`begins`; `ended`; `killed` (it took too long); `not started`; `refused` (the broker's host begins "
            "with a dash); `would run` (a dry run)",
            count="its exit code",
            detail="the command; at its end, what it printed",
        ),
    ),
    "debt": Kind(
        "Replicas that a broker still has to delete, as ZooKeeper holds them now ([debts.md](../debts.md)).",
        _fields(
            "broker topic",
            event="what changed them: `reassigned`, `topic deleted`, `replica is none any more`, `paid`, `given up`",
            partitions="replicas to delete now",
            count="replicas to delete before",
        ),
    ),
    "write": Kind(
        "State znodes were written.",
        _fields("duration_us", partitions="znodes", count="of these, conflicts", bytes="of the largest request"),
    ),
    "request": Kind(
        "A request was sent to a broker.",
        _fields(
            "broker broker_epoch api api_version correlation_id partitions bytes",
            queue_us="how long the request waited for the connection",
        ),
    ),
    "response": Kind(
        "A broker's answer arrived.",
        _fields(
            "broker broker_epoch api api_version correlation_id bytes",
            code="the answer's top-level error code, unless 0; partitions have their own",
            duration_us="since the request was sent",
        ),
    ),
    "bad_znode": Kind(
        "A znode could not be decoded and was left out.",
        _fields("", detail="its path, the content found, and the form expected"),
    ),
    "finding": Kind(
        "The audit found that memory and ZooKeeper differ.",
        _fields(
            "topic partition broker",
            event="the kind of difference",
            detail="an object with `subject`, `found` and `expected`",
        ),
    ),
    "audit": Kind(
        "A pass of the audit has compared the whole cluster.", _fields("partitions duration_us", count="findings")
    ),
    "fault": Kind(
        "A handler failed (a bug), and the controller reads the cluster again; or a failover failed, and the "
        "controller resigns.",
        _fields("", event="what failed", detail="the error"),
    ),
    "unencodable": Kind(
        "Replaces a record that JSON cannot hold.", _fields("", detail="that record, as Python prints it")
    ),
}
