"""A controller's history, written as Kafka's logs would have it: of a release, by clocks that are off, from files that were cut.

The journal is the truth; what it does not hold (when a broker received a request) is made up within a millisecond or two.
"""
# ruff: noqa: E501

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from aiocontroller.journal.records import Record

VERSIONS = ("0.10", "1.1", "2.4", "3.5")
CONTROLLER, STATE, SERVER = "controller.log", "state-change.log", "server.log"
WAY_US = 1_500
"""From the controller to a broker, and back."""
_LOGGER = {
    CONTROLLER: "kafka.controller.KafkaController",
    STATE: "state.change.logger",
    SERVER: "kafka.server.KafkaServer",
}


class LogWriter:
    """``offsets_us``: what each node's clock is ahead of the truth; ``zones``: its time zone, else UTC."""

    def __init__(self, version: str, offsets_us: Mapping[int, int], zones: Mapping[int, str]) -> None:
        self.version, self.offsets_us, self.zones = version, offsets_us, zones
        self._lines: dict[tuple[int, str], list[tuple[int, int, str]]] = defaultdict(list)
        self._count = 0
        self.old = version == "0.10"
        self.info_only = version == "3.5"

    def add(self, records: Iterable[Record]) -> None:
        """In the order of each process; brokers' lines are sorted by time in the end."""
        for r in records:
            write_kind = getattr(self, f"_{r.kind}", None)
            if write_kind is not None:
                write_kind(r)

    def write(self, folder: Path) -> None:
        for (node, file), lines in self._lines.items():
            path = folder / f"broker-{node}" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = "".join(f"{text}\n" for _, _, text in sorted(lines))
            cut_at_both_ends = "\tat kafka.Cut.off(Cut.scala:1)\n" + whole + whole.splitlines()[-1][:40]
            path.write_text(cut_at_both_ends)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _line(self, node: int, file: str, ts_us: int, text: str, level: str = "INFO") -> None:
        self._count += 1
        local = datetime.fromtimestamp((ts_us + self.offsets_us.get(node, 0)) / 1e6, UTC).astimezone(
            ZoneInfo(self.zones.get(node, "UTC"))
        )
        time = local.strftime("%Y-%m-%d %H:%M:%S,") + f"{local.microsecond // 1000:03}"
        self._lines[node, file].append((ts_us, self._count, f"[{time}] {level} {text} ({_LOGGER[file]})"))

    def _state(self, r: Record, text: str, level: str = "TRACE") -> None:
        if self.old:
            text = f"Controller {r.node} epoch {r.epoch} {text[0].lower()}{text[1:]}"
        else:
            text = f"[Controller id={r.node} epoch={r.epoch}] {text}"
        self._line(r.node, STATE, r.ts, text, "INFO" if self.info_only else level)

    def _controller(self, r: Record, text: str) -> None:
        prefix = f"[Controller {r.node}]: " if self.old else f"[Controller id={r.node}] "
        self._line(r.node, CONTROLLER, r.ts, prefix + text)

    def _at_broker(self, node: int, file: str, ts_us: int, text: str, level: str = "TRACE") -> None:
        if self.old and file == STATE:
            text = f"Broker {node} {text[0].lower()}{text[1:]}"
        elif file == STATE:
            text = f"[Broker id={node}] {text}"
        self._line(node, file, ts_us, text, level)

    def _tp(self, r: Record) -> str:
        return f"[{r.topic},{r.partition}]" if self.old else f"{r.topic}-{r.partition}"

    def _leader_and_isr(self, r: Record) -> str:
        isr = list(r.isr or ())
        if self.version == "3.5":
            states = ", ".join(f"BrokerState(brokerId={b}, brokerEpoch=-1)" for b in isr)
            return (
                f"LeaderAndIsr(leader={r.leader}, leaderEpoch={r.leader_epoch}, isrWithBrokerEpoch=List({states}), "
                f"leaderRecoveryState=RECOVERED, partitionEpoch={r.partition_epoch})"
            )
        return f"LeaderAndIsr(leader={r.leader}, leaderEpoch={r.leader_epoch}, isr=List({', '.join(map(str, isr))}), zkVersion={r.partition_epoch})"

    # -- records -------------------------------------------------------------------------------------------------------

    def _elected(self, r: Record) -> None:
        if self.old:
            self._line(r.node, CONTROLLER, r.ts, f"{r.node} successfully elected as leader")
            self._controller(r, f"Broker {r.node} starting become controller state transition")
            self._controller(r, f"Controller {r.node} incremented epoch to {r.controller_epoch}")
        elif self.version == "1.1":
            self._controller(r, f"{r.node} successfully elected as the controller")
        else:
            self._controller(
                r,
                f"{r.node} successfully elected as the controller. Epoch incremented to {r.controller_epoch} and epoch zk version is now 9",
            )
        if not self.old:
            self._controller(r, "Initializing controller context")

    def _loaded(self, r: Record) -> None:
        who = f"Broker {r.node} is ready" if self.old else "Ready"
        self._controller(r, f"{who} to serve as the new controller with epoch {r.epoch}")

    def _resigned(self, r: Record) -> None:
        self._controller(r, f"Broker {r.node} resigned as the controller" if self.old else "Resigned")

    def _broker(self, r: Record) -> None:
        assert r.broker is not None
        if r.detail == "added":
            self._line(
                r.broker,
                SERVER,
                r.ts - 2 * WAY_US,
                f"Registered broker {r.broker} at path /brokers/ids/{r.broker} with addresses: x",
            )
            self._controller(r, f"New broker startup callback for {r.broker}")
        elif r.detail == "dead":
            self._controller(r, f"Broker failure callback for {r.broker}")
        elif r.detail == "controlled shutdown":
            self._controller(r, f"Shutting down broker {r.broker}")

    def _partition(self, r: Record) -> None:
        if r.detail == "OfflineReplica" and not self.old:
            if self.version == "3.5":
                leadership = f"(Leader:{r.leader},ISR:{','.join(map(str, r.isr or ()))},LeaderRecoveryState:RECOVERED,LeaderEpoch:{r.leader_epoch},ZkVersion:{r.partition_epoch},ControllerEpoch:{r.controller_epoch})"
                self._state(
                    r,
                    f"Partition {self._tp(r)} state changed to {leadership} after removing replica 7 from the ISR as part of transition to OfflineReplica",
                )
        elif r.detail == "OfflineReplica":
            isr = ",".join(map(str, r.isr or ()))
            self._controller(
                r,
                f'New leader and ISR for partition {self._tp(r)} is {{"leader":{r.leader},"leader_epoch":{r.leader_epoch},"isr":[{isr}]}}',
            )
        elif r.to_state == "OnlinePartition":
            how = f"with leader {r.leader}" if self.old else f"with state {self._leader_and_isr(r)}"
            self._state(r, f"Changed partition {self._tp(r)} from {r.from_state} to {r.to_state} {how}")
        elif r.to_state == "NewPartition":
            self._state(
                r, f"Changed partition {self._tp(r)} state from {r.from_state} to {r.to_state} with assigned replicas 1"
            )
        elif not self.info_only:
            self._state(r, f"Changed partition {self._tp(r)} state from {r.from_state} to {r.to_state}")
        if r.leader is not None and r.isr:
            self._requests(r)

    def _requests(self, r: Record) -> None:
        """To the ISR: sent and received one by one (TRACE), or seen by what the brokers became (INFO)."""
        isr = ",".join(map(str, r.isr or ()))
        for broker in r.isr or ():
            there = r.ts + WAY_US
            if self.info_only:
                if broker == r.leader and r.to_state == "OnlinePartition":
                    self._at_broker(
                        broker,
                        STATE,
                        there,
                        f"Leader {self._tp(r)} with topic id Some(x) starts at leader epoch {r.leader_epoch} from offset 0 with partition epoch {r.partition_epoch}, high watermark 0, ISR [{isr}], adding replicas [] and removing replicas [] . Previous leader epoch was 0.",
                        "INFO",
                    )
                continue
            old_state = (
                f"(Leader:{r.leader},ISR:{isr},LeaderEpoch:{r.leader_epoch},ControllerEpoch:{r.controller_epoch})"
            )
            fields = f"controllerEpoch={r.controller_epoch}, leader={r.leader}, leaderEpoch={r.leader_epoch}, isr=[{isr.replace(',', ', ')}], zkVersion={r.partition_epoch}, replicas=[1, 2]"
            named = f"LeaderAndIsrPartitionState(topicName='{r.topic}', partitionIndex={r.partition}, {fields}, addingReplicas=[], removingReplicas=[], isNew=false)"
            state = {"0.10": old_state, "1.1": f"PartitionState({fields}, isNew=false)", "2.4": named}[self.version]
            self._state(
                r, f"Sending become-leader LeaderAndIsr request {state} to broker {broker} for partition {self._tp(r)}"
            )
            received = f"PartitionState({fields})" if self.old else state
            last = "" if self.version == "2.4" else f" for partition {self._tp(r)}"
            self._at_broker(
                broker,
                STATE,
                there,
                f"Received LeaderAndIsr request {received} correlation id {10_000 + r.seq} from controller {r.node} epoch {r.epoch}{last}",
            )

    def _response(self, r: Record) -> None:
        if r.api != "LEADER_AND_ISR" or self.info_only or self.old or r.broker is None:
            return
        self._at_broker(
            r.broker,
            STATE,
            r.ts - WAY_US,
            f"Completed LeaderAndIsr request correlationId {r.correlation_id} from controller {r.node} epoch {r.epoch} for the become-leader transition for partition x-0",
        )
        self._state(
            r,
            f"Received response {{error_code=0,partitions=[]}} for request LEADER_AND_ISR with correlation id {r.correlation_id} sent to broker h:9092 (id: {r.broker} rack: null)",
        )

    def _isr(self, r: Record) -> None:
        if r.leader is None or not r.isr:
            return
        isr = ",".join(map(str, r.isr))
        if self.old:
            self._at_broker(
                r.leader,
                SERVER,
                r.ts,
                f"Partition {self._tp(r)} on broker {r.leader}: Expanding ISR for partition {self._tp(r)} from 9 to {isr}",
                "INFO",
            )
            return
        prefix = f"[Partition {self._tp(r)} broker={r.leader}] "
        self._at_broker(r.leader, SERVER, r.ts, f"{prefix}Expanding ISR from 9 to {isr}", "INFO")
        if self.version != "1.1":
            self._at_broker(
                r.leader,
                SERVER,
                r.ts,
                f"{prefix}ISR updated to {isr} and version updated to {r.partition_epoch}",
                "INFO",
            )
