"""What a partition's rows must never show: I1 to I4 and I8, each row against its predecessor.

The rules are those that the simulation checks at every write (``chaos/history.py``), as far as a journal can prove
them.  Two things keep a finding honest:

* A partition that is created anew starts anew (``_FRESH``): its epochs begin at zero again.
* Where a rule is about two *adjacent* states, the versions of the state znode must say so (``_NEXT_VERSION``): between
  other rows something may have happened that no record tells.  The order of states of one term can only be judged
  where no record of that process is missing; such findings say ``if_complete``, and ``violations`` checks it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from aiocontroller.analytics.gold.leadership import KEY, PLACE, PREVIOUS_PLACE

TRANSITIONS: Final = frozenset({
    ("NonExistentPartition", "NewPartition"),
    ("NewPartition", "OnlinePartition"),
    ("NewPartition", "OfflinePartition"),
    ("OnlinePartition", "OfflinePartition"),
    ("OfflinePartition", "OnlinePartition"),
    ("OfflinePartition", "NonExistentPartition"),
})  # fmt: skip
"""Which partition state may follow which other one (``core/states.py``; a test compares them)."""


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
_ALLOWED: Final = ", ".join(f"'{before} {after}'" for before, after in sorted(TRANSITIONS))
_OUTSIDE: Final = "leader >= 0 AND leader <> prev.leader AND NOT array_contains(prev.isr, leader)"


def _list(array: str) -> str:
    return f"concat('[', array_join({array}, ','), ']')"


RULES: Final = (
    Rule(
        "I1",
        f"NOT {_FRESH} AND partition_epoch < prev.partition_epoch AND {_ANOTHER_CONTROLLER}",
        "concat('controller epoch ', prev.epoch, ' wrote version ', prev.partition_epoch, ' of the state, after "
        "epoch ', epoch, ' had version ', partition_epoch)",
    ),
    Rule(
        "I2",
        f"NOT {_FRESH} AND partition_epoch < prev.partition_epoch AND NOT ({_ANOTHER_CONTROLLER})",
        "concat('version ', partition_epoch, ' of the state after ', prev.partition_epoch)",
    ),
    Rule(
        "I2",
        f"NOT {_FRESH} AND leader_epoch < prev.leader_epoch",
        "concat('leader epoch ', leader_epoch, ' after ', prev.leader_epoch)",
    ),
    Rule(
        "I2",
        f"NOT {_FRESH} AND controller_epoch < prev.controller_epoch",
        "concat('controller epoch ', controller_epoch, ' in the state after ', prev.controller_epoch)",
    ),
    Rule(
        "I2",
        "source = 'journal' AND controller_epoch > epoch",
        "concat('the state bears controller epoch ', controller_epoch, ', the controller''s is ', epoch)",
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
        "size(array_except(isr, array_union(replicas, coalesce(prev.replicas, replicas)))) > 0",
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
        f"NOT {_FRESH} AND kind = 'partition' AND {_NEXT_VERSION} AND NOT unclean AND NOT ({_OUTSIDE}) "
        "AND size(array_except(isr, prev.isr)) > 0",
        f"concat('ISR ', {_list('isr')}, ' after ', {_list('prev.isr')}, ', which no leader asked for')",
    ),
    Rule(
        "I4",
        f"NOT {_FRESH} AND {_NEXT_VERSION} AND NOT unclean AND {_OUTSIDE}",
        f"concat('leader ', leader, ' comes from outside the ISR ', {_list('prev.isr')})",
    ),
    Rule(
        "I8",
        f"from_state <> to_state AND NOT concat(from_state, ' ', to_state) IN ({_ALLOWED})",
        "concat('a partition may not go from ', from_state, ' to ', to_state)",
    ),
    Rule(
        "I8",
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
"""Of a timeline's row: null for nearly all, since words are made only for rows that break a rule."""


def findings(rows: DataFrame) -> DataFrame:
    """(cluster, topic, partition, invariant, node, process, epoch, ts_us, words, if_complete, evidence, n)."""
    each = rows.where("found IS NOT NULL").selectExpr("*", "explode(found) AS f")
    return each.selectExpr(
        *KEY, "f.invariant AS invariant", "node", "process", "epoch", "ts_us", "f.words AS words",
        "f.if_complete AS if_complete", f"array_compact(array(f.before, {PLACE})) AS evidence", "n",
    )  # fmt: skip
