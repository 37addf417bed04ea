"""Checks of a partition's rows, each against its predecessor: I1 to I4, and the transitions.

The rules are those that the simulation checks at every write (``lab/checkers/history.py``), as far as a journal can
prove them.  Three precautions prevent false findings:

* A partition that is created again has no predecessor (``_FRESH``), since its epochs begin at zero again.
* A rule about two *adjacent* states requires adjacent versions of the state znode (``_NEXT_VERSION``): between other
  rows, unrecorded changes may have happened.  The order of states within a term can be judged only if no record of that
  process is missing; such findings have ``if_complete``, which ``violations`` checks.
* A rule about what controllers *write* does not judge a state that logs show only as *sent* (``_SENT``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aiocontroller.analytics.dataframes import DataFrame
from aiocontroller.analytics.gold.leadership import KEY, PLACE, PREVIOUS_PLACE

TRANSITIONS: Final = frozenset({
    ("NonExistentPartition", "NewPartition"),
    ("NewPartition", "OnlinePartition"),
    ("NewPartition", "OfflinePartition"),
    ("OnlinePartition", "OfflinePartition"),
    ("OfflinePartition", "OnlinePartition"),
    ("OfflinePartition", "NonExistentPartition"),
})  # fmt: skip
"""The legal changes of partition states (``core/states.py``; a test compares them)."""


class Rule(NamedTuple):
    """``broken`` and ``words`` are SQL over a timeline's row; ``words`` may be null where ``broken`` is not true."""

    invariant: str
    broken: str
    words: str
    if_complete: bool = False


_FRESH: Final = (
    "(prev IS NULL OR prev.phase = 'gone' OR coalesce(from_state IN ('NonExistentPartition', 'NewPartition'), false))"
)
_NEXT_VERSION: Final = "partition_epoch = prev.partition_epoch + 1"
_ANOTHER_CONTROLLER: Final = "epoch > prev.epoch AND process <> prev.process"
_BY_LEADER: Final = (
    "(source <> 'journal' AND prev.to_state IS NULL "
    "AND (prev.process = concat('broker-', prev.leader) OR coalesce(prev.leader_epoch = leader_epoch, false)))"
)
"""Whether the leader wrote the previous row's state, or may have written it: a controller's write raises the leader
epoch.  Before protocol 2.7, leaders write ISRs themselves, without a fence, even after a new controller has read the
state."""
_SENT: Final = "(source <> 'journal' AND to_state IS NULL AND coalesce(leader_epoch = prev.leader_epoch, true))"
"""Whether nothing proves that a controller wrote this row's state: logs show it only in a request, and its leader epoch
is not new.  The leader may have written it.  Nothing was written if Kafka's controller removes a replica that is not in
the ISR: it then puts its own controller epoch into the state that it sends, and writes nothing."""
_ALLOWED: Final = ", ".join(f"'{before} {after}'" for before, after in sorted(TRANSITIONS))
_OUTSIDE: Final = "leader >= 0 AND leader <> prev.leader AND NOT array_contains(prev.isr, leader)"


_NEXT_BY_LOGS: Final = f"({_NEXT_VERSION} OR prev.leader = -1 AND leader_epoch = prev.leader_epoch + 1)"
"""Without a leader, only a controller changes the ISR, and each change by a controller raises the leader epoch.  In 2.6
to 3.1, lines about replicas that a controller removes from an ISR have no version of the state."""
UNCLEAN_BY_LOGS: Final = (
    f"coalesce(unclean OR source <> 'journal' AND NOT {_FRESH} AND {_NEXT_BY_LOGS} AND {_OUTSIDE}, false)"
)
"""Whether a row shows an unclean election; releases before 3.2 write no recovery state."""


def _list(array: str) -> str:
    return f"concat('[', array_join({array}, ','), ']')"


RULES: Final = (
    Rule(
        "I1",
        f"NOT {_FRESH} AND partition_epoch < prev.partition_epoch AND {_ANOTHER_CONTROLLER} AND NOT {_BY_LEADER}",
        "concat('controller epoch ', prev.epoch, ' wrote version ', prev.partition_epoch, ' of the state, after "
        "epoch ', epoch, ' had version ', partition_epoch)",
    ),
    Rule(
        "I2",
        # A broker may report a change after the controller has reported the next one.
        f"NOT {_FRESH} AND partition_epoch < prev.partition_epoch AND NOT ({_ANOTHER_CONTROLLER}) "
        "AND (source = 'journal' OR process = prev.process)",
        "concat('version ', partition_epoch, ' of the state after ', prev.partition_epoch)",
    ),
    Rule(
        "I2",
        f"NOT {_FRESH} AND leader_epoch < prev.leader_epoch",
        "concat('leader epoch ', leader_epoch, ' after ', prev.leader_epoch)",
    ),
    Rule(
        "I2",
        f"NOT {_FRESH} AND NOT {_SENT} AND controller_epoch < prev.controller_epoch",
        "concat('controller epoch ', controller_epoch, ' in the state after ', prev.controller_epoch)",
    ),
    Rule(
        "I2",
        "source = 'journal' AND controller_epoch > epoch",
        "concat('the state has controller epoch ', controller_epoch, ', the controller''s is ', epoch)",
    ),
    Rule(
        "I3",
        "leader >= 0 AND NOT array_contains(isr, leader)",
        f"concat('leader ', leader, ' is not in the ISR ', {_list('isr')})",
    ),
    Rule("I3", "size(isr) = 0", "'the ISR is empty'"),
    Rule("I3", "size(array_distinct(isr)) < size(isr)", f"concat('ISR ', {_list('isr')} , ' has a broker twice')"),
    Rule(
        "I3",
        # Kafka ends a reassignment with requests that have the new replicas and the old ISR; this controller never
        # does.  Nearly always the ISR is within the replicas, which is much cheaper to see.
        "source = 'journal' AND if(size(array_except(isr, replicas)) > 0, "
        "size(array_except(isr, array_union(replicas, coalesce(prev.replicas, replicas)))) > 0, false)",
        f"concat('ISR ', {_list('isr')}, ' has others than the replicas ', {_list('replicas')})",
    ),
    Rule(
        "I3",
        f"NOT {_FRESH} AND leader_epoch = prev.leader_epoch AND leader >= 0 AND prev.leader >= 0 "
        "AND leader <> prev.leader",
        "concat(prev.leader, ' and ', leader, ' both lead in leader epoch ', leader_epoch)",
    ),
    Rule(
        "I3",
        f"NOT {_FRESH} AND NOT {_SENT} AND kind = 'partition' AND {_NEXT_VERSION} AND NOT unclean AND NOT ({_OUTSIDE}) "
        "AND size(array_except(isr, prev.isr)) > 0",
        f"concat('ISR ', {_list('isr')}, ' after ', {_list('prev.isr')}, ', which no leader asked for')",
    ),
    Rule(
        "I4",
        # Logs do not show whether an election was allowed to be unclean, so it counts as unclean (``UNCLEAN_BY_LOGS``).
        f"NOT {_FRESH} AND source = 'journal' AND {_NEXT_VERSION} AND NOT unclean AND NOT keeps_all AND {_OUTSIDE}",
        f"concat('leader ', leader, ' comes from outside the ISR ', {_list('prev.isr')})",
    ),
    Rule(
        "transition",
        f"from_state <> to_state AND NOT concat(from_state, ' ', to_state) IN ({_ALLOWED})",
        "concat('a partition may not go from ', from_state, ' to ', to_state)",
    ),
    Rule(
        "transition",
        f"NOT {_FRESH} AND source = 'journal' AND epoch = prev.epoch AND process = prev.process "
        "AND from_state <> coalesce(prev.to_state, 'OnlinePartition')",
        "concat('it left ', from_state, ', and had become ', coalesce(prev.to_state, 'OnlinePartition'))",
        if_complete=True,
    ),
)


_BROKEN: Final = " OR ".join(f"coalesce({rule.broken}, false)" for rule in RULES)
_EACH: Final = ", ".join(
    f"if({rule.broken}, named_struct('invariant', '{rule.invariant}', 'words', {rule.words}, "
    f"'if_complete', {str(rule.if_complete).lower()}, 'before', {PREVIOUS_PLACE}), NULL)"
    for rule in RULES
)
FOUND: Final = f"if(NOT carried AND ({_BROKEN}), array_compact(array({_EACH})), NULL)"
"""The findings of a timeline's row, null for nearly all; the text is computed only for rows that break a rule."""


def findings(rows: DataFrame) -> DataFrame:
    """Return (cluster, topic, partition, invariant, node, process, epoch, ts_us, words, if_complete, evidence, n)."""
    each = rows.where("found IS NOT NULL").selectExpr("*", "explode(found) AS f")
    return each.selectExpr(
        *KEY, "f.invariant AS invariant", "node", "process", "epoch", "ts_us", "f.words AS words",
        "f.if_complete AS if_complete", f"array_compact(array(f.before, {PLACE})) AS evidence", "n",
    )  # fmt: skip
