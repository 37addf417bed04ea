"""Plays the records that real processes leave behind to the checkers of the simulation.

 * ZooKeeper's transaction log becomes the ``ZNodeHistory``, which checks I1, I2, I3, I4, one leader and I8 at every
   change.
 * The brokers' records become what was requested, received and acknowledged: I3, I5.
 * ``check_journal`` checks the controllers' journals: I2, I7, I12, bugs.  Together they must be a path of the
   specification.

``read`` may be called repeatedly while the processes run, and goes on where it ended.  It reads the brokers' records
first, then ZooKeeper's log, then the requests that brokers have made meanwhile; in this order, partly written records
cause no false violation.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from aiocontroller.journal.records import Record, decode_record
from aiocontroller.lab.checkers.history import Writer, ZNodeHistory
from aiocontroller.lab.checkers.observers import check_journal
from aiocontroller.lab.exploration.journals import first_stray, unrecorded
from aiocontroller.lab.processes.measures import Measures
from aiocontroller.lab.processes.observed_broker import Observation
from aiocontroller.lab.processes.transaction_log import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    DELETE,
    Change,
    Transaction,
    read_transactions,
)
from aiocontroller.zookeeper import paths

HEARD_WITHIN_MS = 2_000
"""A broker that registered less than this ago may be unknown to every controller."""
_BROKERS = paths.broker_id(0).removesuffix("0")


class Replay:
    """``servers`` are the data folders of ZooKeeper's servers; ``brokers`` and ``controllers`` those of the
    processes."""

    def __init__(self, servers: Sequence[Path], brokers: Sequence[Path], controllers: Sequence[Path]) -> None:
        self._servers, self._brokers, self._controllers = servers, brokers, controllers
        self._nodes: set[str] = set()  # membership only
        self._registered: dict[int, tuple[int, int]] = {}
        """Broker -> (its epoch, the time of its registration)."""
        self._read_bytes: dict[Path, int] = defaultdict(int)
        self._unplayed: list[Observation] = []
        self.history = ZNodeHistory(self._nodes.__contains__, self._broker_epoch, lambda: self.now_ms / 1000)
        self.measures = Measures()
        self.transactions = 0
        self.observations = 0
        self.last_zxid = 0
        self.now_ms = 0

    def read(self) -> None:
        """Play what has been written since the last call."""
        heard = self._unplayed + list(self._observed())
        transactions = read_transactions(self._servers, self.last_zxid)
        self._unplayed = list(self._observed())
        for seen in [*heard, *self._unplayed]:
            if seen.what == "asked":
                self.history.asked((seen.topic, seen.partition), *seen.leadership[1:])
        for transaction in transactions:
            self._play(transaction)
        for seen in heard:
            if seen.what != "asked":
                getattr(self.history, seen.what)(seen.broker, (seen.topic, seen.partition), seen.leadership)
        self.observations += len(heard)
        self.now_ms = max(self.now_ms, time.time_ns() // 1_000_000)  # even if nothing was written since

    def violations(self) -> list[str]:
        """Return all violations so far, each once."""
        return list(dict.fromkeys([*map(str, self.history.violations), *self._journals()]))

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    def _broker_epoch(self, broker: int) -> int:
        epoch, since_ms = self._registered.get(broker, (0, 0))
        return epoch if self.now_ms - since_ms >= HEARD_WITHIN_MS else 0

    def _play(self, transaction: Transaction) -> None:
        self.last_zxid, self.now_ms = transaction.zxid, transaction.time_ms
        self.transactions += 1
        touched = {(change.kind, change.path) for change in transaction.changes}
        session = 0 if transaction.kind == CLOSE_SESSION else transaction.session
        writer = Writer(
            session,
            fenced=(CHECK, paths.CONTROLLER_EPOCH) in touched,
            controller=not touched.isdisjoint([(CREATE, paths.CONTROLLER), (DELETE, paths.CONTROLLER)]),
        )
        for change in transaction.changes:  # what exists is judged after the whole transaction, as watchers see it
            if change.kind == CREATE:
                self._nodes.add(change.path)
            elif change.kind == DELETE:
                self._nodes.discard(change.path)
        for change in transaction.changes:
            self._change(change, transaction, writer)
        self.measures.see(transaction, self.history)

    def _change(self, change: Change, transaction: Transaction, writer: Writer) -> None:
        broker = change.path.removeprefix(_BROKERS)
        if change.kind == DELETE:
            self.history.deleted(change.path, writer)
            if broker.isdecimal():
                self._registered.pop(int(broker), None)
        elif change.kind != CHECK:
            if change.kind == CREATE and broker.isdecimal():
                self._registered[int(broker)] = transaction.zxid, transaction.time_ms
            self.history.changed(change.path, change.data, change.version, writer)

    # -- brokers and controllers -----------------------------------------------------------------------------------

    def _observed(self) -> Iterator[Observation]:
        for folder in self._brokers:
            for file in sorted(folder.glob("observed-*.jsonl")):
                with open(file, "rb") as opened:
                    opened.seek(self._read_bytes[file])
                    whole, newline, _ = opened.read().rpartition(b"\n")
                self._read_bytes[file] += len(whole) + len(newline)
                for line in whole.splitlines():
                    try:
                        yield msgspec.json.decode(line, type=Observation)
                    except msgspec.MsgspecError:
                        pass  # cut off by a kill; the next process writes a file of its own

    def _journals(self) -> Iterator[str]:
        journals = list(self.journals())
        for records in journals:
            yield from check_journal(records)
        stray = first_stray(journals, unrecorded(journals, self.history))
        if stray is not None:
            yield f"specification: {stray}"

    def journals(self) -> Iterator[list[Record]]:
        """Yield the records of each controller process, in order."""
        processes: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for folder in self._controllers:
            for file in sorted((folder / "journal").glob("*journal-*.jsonl")):
                node, _, start_us, _ = file.stem.rpartition("journal-")[2].split("-")
                processes[node, start_us] += _records(file)
        for records in processes.values():
            yield sorted(records, key=lambda record: record.seq)


def _records(file: Path) -> Iterator[Record]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:  # completed at this moment, and thus renamed
        content = file.with_name(file.name.removeprefix("_")).read_bytes()
    for line in content.splitlines():
        try:
            yield decode_record(line)
        except msgspec.MsgspecError:
            pass  # cut off by a kill
