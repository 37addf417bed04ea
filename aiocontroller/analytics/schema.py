"""Every table's columns, in one place.

Times (``*_us``) are microseconds since 1970 UTC as bigint, durations bigint microseconds, names snake_case.  Columns
are only ever added.  Bronze of journals is read with ``JOURNAL``, which is made from the journal's own schema; both
sources meet in ``EVENTS``.  ``docs/pipeline.md`` describes the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiocontroller.journal.records import FORMAT_VERSION, Record

INT, LONG, STRING, DOUBLE, BOOLEAN, INTS, STRINGS = (
    "int",
    "bigint",
    "string",
    "double",
    "boolean",
    "array<int>",
    "array<string>",
)


class Field(NamedTuple):
    """A column."""

    name: str
    dataType: str
    """As Spark SQL names it."""


@dataclass(frozen=True)
class Table:
    """A table's columns, for every engine."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        """The columns' names in their order."""
        return [field.name for field in self.fields]

    @property
    def ddl(self) -> str:
        """Return the columns as a Spark DDL string."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def with_text(self, name: str) -> Table:
        """Return the table with one more text column."""
        return Table((*self.fields, Field(name, STRING)))


JOURNAL_VERSIONS: Final = frozenset({FORMAT_VERSION})
"""The values of ``v`` to which ``JOURNAL`` applies; records with other values go into quarantine."""
JOURNAL_REQUIRED: Final = ("v", "seq", "epoch", "node", "ts", "kind")

JOURNAL_SOURCE, CONTROLLER_LOG, STATE_CHANGE_LOG, SERVER_LOG = (
    "journal",
    "controller.log",
    "state-change.log",
    "server.log",
)
SOURCES: Final = (JOURNAL_SOURCE, CONTROLLER_LOG, STATE_CHANGE_LOG, SERVER_LOG)

_WIDE = frozenset({"seq", "ts", "broker_epoch", "count", "bytes"})
"""Journal fields that need 64 bits, besides all that end in ``_us``."""


def _table(columns: str) -> Table:
    """Return a table from ``name type`` pairs, separated by commas or line ends."""
    types = {
        "int": INT, "long": LONG, "string": STRING, "double": DOUBLE, "ints": INTS, "strings": STRINGS,
        "boolean": BOOLEAN,
    }  # fmt: skip
    pairs = (pair.split() for pair in columns.replace("\n", ",").split(",") if pair.strip())
    return Table(tuple(Field(name, types[kind]) for name, kind in pairs))


def _journal_type(name: str, annotation: str) -> str:
    if "Sequence" in annotation:
        return INTS
    if "int" in annotation:
        return LONG if name in _WIDE or name.endswith("_us") else INT
    return STRING  # str; an object in detail becomes its JSON text


JOURNAL: Final = Table(
    tuple(Field(name, _journal_type(name, str(kind))) for name, kind in Record.__annotations__.items())
)
"""One journal record, version 1 (``docs/journal.md``)."""

ORIGIN: Final = _table(
    """
    source string, cluster string, process string, start_us long, file string, reference string, joined boolean
    """
)
"""The origin of a bronze record.

``process`` is one writer: ``node-start`` for a journal, with ``start_us`` as the start; the log's file for a log.
``reference`` lets a person find the record: ``file:time as in the file`` for a log; for a journal's records silver
makes ``process:seq`` when needed.  ``joined``: the record was on one line with the previous record.
"""

EVENTS_BRONZE: Final = Table((*JOURNAL.fields, *ORIGIN.fields))
"""bronze/events, for journals and logs: records as in their files, under the journal's names."""

REJECTED: Final = _table("line string, reason string")
"""The readers' additional columns; both are null for a record that was understood."""

QUARANTINE: Final = _table("line string, file string, reason string, source string, cluster string, count long")
"""bronze/quarantine: ``count`` lines of a file that could not be read for the same reason; ``line`` is one of them."""
REPEATED: Final = _table("file string, duplicates long")
"""The number of a file's records that had been read before."""
READ: Final = _table("file string, read long")
"""How many records of each log bronze holds: silver leaves some out, and has rows that follow from several."""
SAMPLE_CHARACTERS: Final = 500

EVENTS: Final = _table(
    """
    cluster string, source string, node int, process string, start_us long, epoch int, seq long
    ts_us long, ts_error_us long, kind string, event string, state string
    topic string, partition int, replica int, from_state string, to_state string
    leader int, leader_epoch int, isr ints, replicas ints, recovery_state int
    controller_epoch int, partition_epoch int
    broker int, broker_epoch long, brokers ints
    api string, api_version int, correlation_id int
    partitions long, conflicts long, count long, bytes long, code int
    queue_us long, processing_us long, duration_us long
    detail string, file string, reference string
    """
)
"""silver/events, for journals and logs.

``kind`` has the journal's values (``docs/journal.md``).  The order is ``ORDER``, never ``ts_us`` across nodes.  A log's
``seq`` is for ordering only: it may differ between runs.
"""
ORDER: Final = ("epoch", "start_us", "process", "seq")

TIMELINE: Final = _table(
    """
    cluster string, topic string, partition int
    source string, node int, process string, start_us long, epoch int, seq long, ts_us long, ts_error_us long
    kind string, from_state string, to_state string, replicas ints
    leader int, leader_epoch int, isr ints, controller_epoch int, partition_epoch int
    detail string, reference string
    prev_to_state string, prev_leader int, prev_leader_epoch int, prev_isr ints, prev_ts_us long
    prev_controller_epoch int
    next_to_state string, next_leader int, next_leader_epoch int, next_isr ints, next_ts_us long
    next_controller_epoch int
    """
)
"""silver/timeline: a row for each change of a partition's leadership or state, with its neighbours in order."""

CLOCKS: Final = _table(
    "cluster string, node int, offset_us long, error_us long, pairs long, method string, source string, file string"
)
"""silver/clocks: ``offset_us`` is how far a node's clock is ahead of the cluster's reference, ± ``error_us``.

With ``source``: how far the node's logs of this kind, such as ``file``, are ahead of its other logs (``appenders``)."""

GOLD: Final = {
    "windows": _table(
        """
        cluster string, topic string, partition int, start_us long, end_us long, duration_us long, kind string
        cause string, broker int, leader_before int, leader_after int, error_us long, evidence strings
        onset_us long, onset_error_us long, onset_evidence string
        """
    ),
    "incidents": _table(
        """
        cluster string, number int, what string, broker int, how string, cause string, certainty string
        onset_us long, onset_error_us long, onset_evidence string, session_end_us long, noticed_us long
        controller_before int, controller_after int, controller_epoch int, elected_us long
        led_again_us long, in_sync_us long, partitions long, topics long, under_replicated long
        unavailable_us long, longest_us long, still_open long, evidence strings
        """
    ),
    "completeness": _table(
        """
        cluster string, what string, name string, known boolean, from_us long, to_us long, words string
        """
    ),
    "failovers": _table(
        """
        cluster string, node int, epoch int, elected_us long, loaded_us long, duration_us long
        partitions long, brokers long, topics long, sources string
        """
    ),
    "failover_phases": _table(
        "cluster string, node int, epoch int, phase string, duration_us long, position int"
    ),
    "latencies": _table(
        """
        cluster string, what string, name string, broker int, count long
        p50_us long, p90_us long, p99_us long, p999_us long, max_us long, mean_us long, sources string
        """
    ),
    "churn": _table(
        """
        cluster string, hour_us long, topic string, broker int
        leader_changes long, isr_changes long, elections_unclean long, sources string
        """
    ),
    "imbalance": _table(
        "cluster string, ts_us long, broker int, leaders long, preferred_leaders long, replicas long, imbalance double"
    ),
    "requests": _table(
        """
        cluster string, broker int, api string, count long, partitions long, bytes long, errors long, unanswered long
        p50_us long, p99_us long, max_us long
        """
    ),
    "violations": _table(
        """
        cluster string, invariant string, topic string, partition int, node int, epoch int, ts_us long
        words string, evidence strings
        """
    ),
    "problems": _table(
        """
        cluster string, problem string, broker int, topic string, partition int, from_us long, to_us long
        times long, partitions long, words string, advice string, evidence strings
        """
    ),
    "availability": _table(
        """
        cluster string, level string, name string, from_us long, to_us long
        partitions long, unavailable_us long, availability double
        onset_unavailable_us long, onset_error_us long, onset_availability double
        """
    ),
    "brokers": _table(
        """
        cluster string, broker int, broker_epoch long, event string, ts_us long
        partitions_led long, processing_us long, windows long, longest_window_us long
        """
    ),
    "data_quality": _table(
        """
        file string, source string, records long, quarantined long, torn long, duplicates long, gaps long
        first_us long, last_us long, words string
        """
    ),
}  # fmt: skip
