"""Lines as Kafka's releases write them (each wording from its source), and what each means: a line, its row.

``node`` and ``epoch`` are the writer's, as far as the line says so.  Not named columns must be null.
"""
# ruff: noqa: E501  (a line of a log is easier to find again when it is cut where it must be only)

from __future__ import annotations

from typing import Any, NamedTuple


class Line(NamedTuple):
    version: str
    text: str
    row: dict[str, Any]


def at(version: str, text: str, **row: Any) -> Line:
    return Line(version, text, row)


LISR, UMR, STOP = "LEADER_AND_ISR", "UPDATE_METADATA", "STOP_REPLICA"
T = "[2018-02-01 20:22:23,264]"

STATE_CHANGE = [
    # -- partitions ----------------------------------------------------------------------------------------------------
    at("0.10", f"{T} TRACE Controller 1 epoch 2 changed partition [my-topic,0] state from NonExistentPartition to "
       "NewPartition with assigned replicas 1,2 (state.change.logger)", kind="partition", node=1, epoch=2,
       topic="my-topic", partition=0, from_state="NonExistentPartition", to_state="NewPartition", replicas=[1, 2],
       controller_epoch=2),
    at("0.10", f"{T} TRACE Controller 1 epoch 2 changed partition [t,0] from NewPartition to OnlinePartition with leader 1 "
       "(state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0, from_state="NewPartition",
       to_state="OnlinePartition", leader=1, controller_epoch=2),
    at("0.10", f"{T} TRACE Controller 1 epoch 2 elected leader 3 for Offline partition [t,0] (state.change.logger)",
       kind="other", event="elected leader", node=1, epoch=2, topic="t", partition=0, leader=3),
    at("0.10", f"{T} TRACE Controller 1 epoch 2 changed partition [t,0] state from OnlinePartition to OfflinePartition "
       "(state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0,
       from_state="OnlinePartition", to_state="OfflinePartition", controller_epoch=2),
    at("0.10", f"{T} ERROR Controller 1 epoch 2 initiated state change for partition [t,0] from OfflinePartition to "
       "OnlinePartition failed (state.change.logger)\nkafka.common.NoReplicaOnlineException: No replica\n\tat kafka.x.y(Z)",
       kind="failed", node=1, epoch=2, topic="t", partition=0, from_state="OfflinePartition",
       to_state="OnlinePartition", detail=...),
    at("0.10", f"{T} ERROR Controller 1 epoch 2 encountered error while electing leader for partition [t,0] due to: "
       "No assigned replica is alive. (state.change.logger)", kind="failed", node=1, epoch=2, topic="t", partition=0,
       detail="No assigned replica is alive"),
    at("1.0", "[2019-10-04 08:26:01,376] TRACE [Controller id=1 epoch=1] Changed partition krp-0 from OnlinePartition to "
       "OnlinePartition with leader 2 (state.change.logger)", kind="partition", node=1, epoch=1, topic="krp",
       partition=0, from_state="OnlinePartition", to_state="OnlinePartition", leader=2, controller_epoch=1),
    at("1.1", f"{T} TRACE [Controller id=1 epoch=2] Changed partition a-b.c_d-10 from OfflinePartition to OnlinePartition "
       "with state LeaderAndIsr(leader=3, leaderEpoch=7, isr=List(3, 4), zkVersion=9) (state.change.logger)",
       kind="partition", node=1, epoch=2, topic="a-b.c_d", partition=10, from_state="OfflinePartition",
       to_state="OnlinePartition", leader=3, leader_epoch=7, isr=[3, 4], partition_epoch=9, controller_epoch=2),
    at("2.4", f"{T} TRACE [Controller id=1 epoch=2] Changed partition t-0 state from NonExistentPartition to NewPartition "
       "with assigned replicas 3 (state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0,
       from_state="NonExistentPartition", to_state="NewPartition", replicas=[3], controller_epoch=2),
    at("3.5", f"{T} INFO [Controller id=1 epoch=2] Changed partition t-0 from NewPartition to OnlinePartition with state "
       "LeaderAndIsr(leader=3, leaderEpoch=0, isrWithBrokerEpoch=List(BrokerState(brokerId=3, brokerEpoch=25), "
       "BrokerState(brokerId=11, brokerEpoch=-1)), leaderRecoveryState=RECOVERING, partitionEpoch=4) "
       "(state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0, from_state="NewPartition",
       to_state="OnlinePartition", leader=3, leader_epoch=0, isr=[3, 11], partition_epoch=4, recovery_state=1,
       controller_epoch=2),
    at("3.5", f"{T} TRACE [Controller id=1 epoch=2] Changed partition t-0 state from OfflinePartition to "
       "NonExistentPartition (state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0,
       from_state="OfflinePartition", to_state="NonExistentPartition", controller_epoch=2),
    at("2.8", f"{T} INFO [Controller id=1 epoch=2] Partition t-0 state changed to (Leader:-1,ISR:3,LeaderEpoch:5,"
       "ZkVersion:6,ControllerEpoch:2) after removing replica 3 from the ISR as part of transition to OfflineReplica "
       "(state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0, leader=-1, leader_epoch=5,
       isr=[3], partition_epoch=6, controller_epoch=2, replica=3),
    at("3.5", f"{T} INFO [Controller id=1 epoch=2] Partition t-0 state changed to (Leader:4,ISR:4,LeaderRecoveryState:"
       "RECOVERED,LeaderEpoch:5,ZkVersion:6,ControllerEpoch:2) after removing replica 3 from the ISR as part of "
       "transition to OfflineReplica (state.change.logger)", kind="partition", node=1, epoch=2, topic="t", partition=0,
       leader=4, leader_epoch=5, isr=[4], recovery_state=0, partition_epoch=6, controller_epoch=2, replica=3),
    at("1.1", f"{T} ERROR [Controller id=1 epoch=2] Controller 1 epoch 2 failed to change state for partition t-0 from "
       "OfflinePartition to OnlinePartition (state.change.logger)\nkafka.common.StateChangeFailedException: x\n\tat a.b(C)",
       kind="failed", node=1, epoch=2, topic="t", partition=0, from_state="OfflinePartition",
       to_state="OnlinePartition", detail=...),
    # -- replicas ------------------------------------------------------------------------------------------------------
    at("0.10", f"{T} TRACE Controller 1 epoch 2 changed state of replica 3 for partition [t,0] from NewReplica to "
       "OnlineReplica (state.change.logger)", kind="replica", node=1, epoch=2, topic="t", partition=0, replica=3,
       from_state="NewReplica", to_state="OnlineReplica"),
    at("2.4", f"{T} TRACE [Controller id=1 epoch=2] Changed state of replica 3 for partition t-0 from OnlineReplica to "
       "OfflineReplica (state.change.logger)", kind="replica", node=1, epoch=2, topic="t", partition=0, replica=3,
       from_state="OnlineReplica", to_state="OfflineReplica"),
    at("2.4", f"{T} ERROR [Controller id=1 epoch=2] Controller 1 epoch 2 initiated state change of replica 3 for partition "
       "t-0 from OfflineReplica to NewReplica failed (state.change.logger)", kind="failed", node=1, epoch=2, topic="t",
       partition=0, replica=3, from_state="OfflineReplica", to_state="NewReplica", detail=...),
    # -- requests, at the controller -----------------------------------------------------------------------------------
    at("0.10", f"{T} TRACE Controller 1 epoch 2 sending become-leader LeaderAndIsr request (Leader:1,ISR:1,2,LeaderEpoch:3,"
       "ControllerEpoch:4) to broker 5 for partition [t,0] (state.change.logger)", kind="told", api=LISR, node=1,
       epoch=2, leader=1, isr=[1, 2], leader_epoch=3, controller_epoch=4, broker=5, topic="t", partition=0),
    at("1.1", f"{T} TRACE [Controller id=1 epoch=2] Sending become-follower LeaderAndIsr request PartitionState("
       "controllerEpoch=2, leader=1, leaderEpoch=3, isr=1,2, zkVersion=6, replicas=1,2,3, isNew=false) to broker 5 for "
       "partition t-0 (state.change.logger)", kind="told", api=LISR, node=1, epoch=2, leader=1, isr=[1, 2],
       leader_epoch=3, controller_epoch=2, partition_epoch=6, replicas=[1, 2, 3], broker=5, topic="t", partition=0),
    at("2.4", f"{T} TRACE [Controller id=1 epoch=2] Sending become-leader LeaderAndIsr request LeaderAndIsrPartitionState("
       "topicName='t', partitionIndex=0, controllerEpoch=2, leader=1, leaderEpoch=3, isr=[1, 2], zkVersion=6, "
       "replicas=[1, 2, 3], addingReplicas=[], removingReplicas=[], isNew=true) to broker 5 for partition t-0 "
       "(state.change.logger)", kind="told", api=LISR, node=1, epoch=2, leader=1, isr=[1, 2], leader_epoch=3,
       controller_epoch=2, partition_epoch=6, replicas=[1, 2, 3], broker=5, topic="t", partition=0),
    at("2.6", "[2020-03-26 11:38:33,075] INFO [Controller id=0 epoch=1] Sending LeaderAndIsr request to broker 1 with 2 "
       "become-leader and 3 become-follower partitions (state.change.logger)", kind="request", api=LISR, node=0,
       epoch=1, broker=1, partitions=5),
    at("2.6", f"{T} INFO [Controller id=1 epoch=2] Sending UpdateMetadata request to brokers Set(1, 2) for 7 partitions "
       "(state.change.logger)", kind="request", api=UMR, node=1, epoch=2, brokers=[1, 2], partitions=7),
    at("3.5", f"{T} INFO [Controller id=1 epoch=2] Sending UpdateMetadata request to brokers HashSet() for 0 partitions "
       "(state.change.logger)", kind="request", api=UMR, node=1, epoch=2, partitions=0),
    at("0.10", f"{T} TRACE Controller 1 epoch 2 sending UpdateMetadata request (Leader:1,ISR:1,LeaderEpoch:3,"
       "ControllerEpoch:4) to brokers Set(5, 6) for partition t-0 (state.change.logger)", kind="told", api=UMR, node=1,
       epoch=2, leader=1, isr=[1], leader_epoch=3, controller_epoch=4, brokers=[5, 6], topic="t", partition=0),
    at("1.1", f"{T} TRACE [Controller id=1 epoch=2] Sending UpdateMetadata request PartitionState(controllerEpoch=2, "
       "leader=1, leaderEpoch=3, isr=[1, 2], zkVersion=6, replicas=[1, 2], offlineReplicas=[]) to brokers Set(5) for "
       "partition t-0 (state.change.logger)", kind="told", api=UMR, node=1, epoch=2, leader=1, isr=[1, 2],
       leader_epoch=3, controller_epoch=2, partition_epoch=6, replicas=[1, 2], brokers=[5], topic="t", partition=0),
    at("2.6", f"{T} INFO [Controller id=1 epoch=2] Sending StopReplica request for 4 replicas to broker 5 "
       "(state.change.logger)", kind="request", api=STOP, node=1, epoch=2, broker=5, partitions=4),
    at("2.6", f"{T} INFO [Controller id=1 epoch=2] Sending StopReplica request (delete = true) for 4 replicas to broker 5 "
       "(state.change.logger)", kind="request", api=STOP, node=1, epoch=2, broker=5, partitions=4, detail="true"),
    at("0.10", "[2016-07-24 07:29:20,283] TRACE Controller 1001 epoch 1 received response {error_code=0} for a request "
       "sent to broker localhost:29092 (id: 1001 rack: null) (state.change.logger)", kind="response", node=1001,
       epoch=1, code=0, broker=1001),
    at("1.1", f"{T} TRACE [Controller id=1 epoch=2] Received response {{error_code=11,partitions=[]}} for request "
       "LEADER_AND_ISR with correlation id 12 sent to broker h.x:9092 (id: 5 rack: r1) (state.change.logger)",
       kind="response", node=1, epoch=2, code=11, broker=5, api=LISR, correlation_id=12),
    at("2.8", f"{T} TRACE [Controller id=1 epoch=2] Received response UpdateMetadataResponseData(errorCode=0) for request "
       "UPDATE_METADATA with correlation id 13 sent to broker h:9092 (id: 5 rack: null) (state.change.logger)",
       kind="response", node=1, epoch=2, code=0, broker=5, api=UMR, correlation_id=13),
    # -- requests, at the broker ---------------------------------------------------------------------------------------
    at("0.10", f"{T} TRACE Broker 5 received LeaderAndIsr request PartitionState(controllerEpoch=2, leader=1, leaderEpoch=3, "
       "isr=[1, 2], zkVersion=6, replicas=[1, 2]) correlation id 9 from controller 1 epoch 4 for partition [t,0] "
       "(state.change.logger)", kind="received", api=LISR, node=5, broker=5, leader=1, leader_epoch=3, isr=[1, 2],
       partition_epoch=6, replicas=[1, 2], controller_epoch=2, correlation_id=9, topic="t", partition=0, detail="1", epoch=4),
    at("1.1", f"{T} TRACE [Broker id=5] Received LeaderAndIsr request PartitionState(controllerEpoch=2, leader=1, "
       "leaderEpoch=3, isr=1,2, zkVersion=6, replicas=1,2, isNew=true) correlation id 9 from controller 1 epoch 4 for "
       "partition t-0 (state.change.logger)", kind="received", api=LISR, node=5, broker=5, leader=1, leader_epoch=3,
       isr=[1, 2], partition_epoch=6, replicas=[1, 2], controller_epoch=2, correlation_id=9, topic="t", partition=0,
       detail="1", epoch=4),
    at("2.4", "2020-04-01 08:53:12,805 TRACE [Broker id=0] Received LeaderAndIsr request LeaderAndIsrPartitionState("
       "topicName='connect-cluster-offsets', partitionIndex=15, controllerEpoch=1, leader=0, leaderEpoch=0, "
       "isr=[0, 1, 2], zkVersion=0, replicas=[0, 1, 2], addingReplicas=[], removingReplicas=[], isNew=true) correlation "
       "id 2 from controller 2 epoch 1 (state.change.logger) [data-plane-kafka-request-handler-2]", kind="received",
       api=LISR, node=0, broker=0, leader=0, leader_epoch=0, isr=[0, 1, 2], replicas=[0, 1, 2], partition_epoch=0,
       controller_epoch=1, correlation_id=2, topic="connect-cluster-offsets", partition=15, detail="2", epoch=1),
    at("3.5", f"{T} INFO [Broker id=5] Handling LeaderAndIsr request correlationId 9 from controller 1 for 12 partitions "
       "(state.change.logger)", kind="received", api=LISR, node=5, broker=5, correlation_id=9, partitions=12, detail="1"),
    at("3.5", f"{T} INFO [Broker id=5] Handling StopReplica request correlationId 9 from controller 1 for 12 partitions "
       "(state.change.logger)", kind="received", api=STOP, node=5, broker=5, correlation_id=9, partitions=12, detail="1"),
    at("3.5", f"{T} INFO [Broker id=5] Finished LeaderAndIsr request in 43ms correlationId 9 from controller 1 for 12 "
       "partitions (state.change.logger)", kind="handled", api=LISR, node=5, broker=5, correlation_id=9, partitions=12,
       duration_us=43_000, detail="1"),
    at("0.10", "[2018-02-01 20:22:23,264] TRACE Broker 1001 completed LeaderAndIsr request correlationId 13 from controller "
       "1001 epoch 1 for the become-leader transition for partition [app,0] (state.change.logger)", kind="handled",
       api=LISR, node=1001, broker=1001, correlation_id=13, controller_epoch=1, event="become-leader", topic="app",
       partition=0, detail="1001"),
    at("2.4", f"{T} TRACE [Broker id=5] Completed LeaderAndIsr request correlationId 9 from controller 1 epoch 2 for the "
       "become-follower transition for partition t-0 with leader 3 (state.change.logger)", kind="handled", api=LISR,
       node=5, broker=5, correlation_id=9, controller_epoch=2, event="become-follower", topic="t", partition=0,
       detail="1"),
    at("2.8", f"{T} INFO [Broker id=5] Leader t-0 starts at leader epoch 3 from offset 10 with high watermark 9 ISR [1,2] "
       "addingReplicas [] removingReplicas []. Previous leader epoch was 2. (state.change.logger)", kind="handled",
       event="become-leader", node=5, broker=5, topic="t", partition=0, leader_epoch=3, isr=[1, 2]),
    at("3.5", f"{T} INFO [Broker id=5] Leader t-0 with topic id Some(abc_-DEF) starts at leader epoch 3 from offset 10 with "
       "partition epoch 7, high watermark 9, ISR [1,2], adding replicas [] and removing replicas [] (under-min-isr). "
       "Previous leader epoch was 2. (state.change.logger)", kind="handled", event="become-leader", node=5, broker=5,
       topic="t", partition=0, leader_epoch=3, isr=[1, 2], partition_epoch=7, detail="abc_-DEF"),
    at("3.5", f"{T} INFO [Broker id=5] Leader t-0 with topic id None starts at leader epoch 3 from offset 10 with "
       "partition epoch 7, high watermark 9, ISR [1,2], adding replicas [] and removing replicas []. Previous leader "
       "epoch was 2. (state.change.logger)", kind="handled", event="become-leader", node=5, broker=5, topic="t",
       partition=0, leader_epoch=3, isr=[1, 2], partition_epoch=7),
    at("3.5", f"{T} INFO [Broker id=5] Follower t-0 starts at leader epoch 3 from offset 10 with partition epoch 7 and high "
       "watermark 9. Current leader is 2. Previous leader epoch was 2. (state.change.logger)", kind="handled",
       event="become-follower", node=5, broker=5, topic="t", partition=0, leader_epoch=3, partition_epoch=7, leader=2),
    at("0.10", f"{T} WARN Broker 5 received update metadata request with correlation id 9 from an old controller 1 with "
       "epoch 2. Latest known controller epoch is 3 (state.change.logger)", kind="stale", api=UMR, node=5, broker=5,
       correlation_id=9, controller_epoch=2, detail="1"),
    at("1.1", f"{T} WARN [Broker id=5] Received update metadata request with correlation id 9 from an old controller 1 with "
       "epoch 2. Latest known controller epoch is 3 (state.change.logger)", kind="stale", api=UMR, node=5, broker=5,
       correlation_id=9, controller_epoch=2, detail="1"),
    at("0.10", f"{T} WARN Broker 5 ignoring LeaderAndIsr request from controller 1 with correlation id 9 since its controller "
       "epoch 2 is old. Latest known controller epoch is 3 (state.change.logger)", kind="stale", api=LISR, node=5,
       broker=5, correlation_id=9, controller_epoch=2, detail="1"),
    at("3.5", f"{T} WARN [Broker id=5] Ignoring StopReplica request from controller 1 with correlation id 9 since its "
       "controller epoch 2 is old. Latest known controller epoch is 3 (state.change.logger)", kind="stale", api=STOP,
       node=5, broker=5, correlation_id=9, controller_epoch=2, detail="1"),
    at("0.10", f"{T} TRACE Broker 5 cached leader info (LeaderAndIsrInfo:(Leader:1,ISR:1,2,LeaderEpoch:0,ControllerEpoch:2),"
       "ReplicationFactor:2),AllReplicas:1,2) for partition t-0 in response to UpdateMetadata request sent by controller "
       "1 epoch 4 with correlation id 8 (state.change.logger)", kind="received", api=UMR, node=5, broker=5, leader=1,
       isr=[1, 2], leader_epoch=0, controller_epoch=2, replicas=[1, 2], topic="t", partition=0, correlation_id=8,
       detail="1", epoch=4),
    at("1.1", f"{T} TRACE [Broker id=5] Cached leader info PartitionState(controllerEpoch=2, leader=1, leaderEpoch=0, "
       "isr=[1, 2], zkVersion=0, replicas=[1, 2], offlineReplicas=[]) for partition t-0 in response to UpdateMetadata "
       "request sent by controller 1 epoch 4 with correlation id 8 (state.change.logger)", kind="received", api=UMR,
       node=5, broker=5, leader=1, isr=[1, 2], leader_epoch=0, controller_epoch=2, partition_epoch=0, replicas=[1, 2],
       topic="t", partition=0, correlation_id=8, detail="1", epoch=4),
    at("2.4", f"{T} TRACE [Broker id=5] Cached leader info UpdateMetadataPartitionState(topicName='t', partitionIndex=0, "
       "controllerEpoch=2, leader=1, leaderEpoch=0, isr=[1, 2], zkVersion=0, replicas=[1, 2], offlineReplicas=[]) for "
       "partition t-0 in response to UpdateMetadata request sent by controller 1 epoch 4 with correlation id 8 "
       "(state.change.logger)", kind="received", api=UMR, node=5, broker=5, leader=1, isr=[1, 2], leader_epoch=0,
       controller_epoch=2, partition_epoch=0, replicas=[1, 2], topic="t", partition=0, correlation_id=8, detail="1", epoch=4),
    at("2.6", f"{T} INFO [Broker id=5] Add 7 partitions and deleted 1 partitions from metadata cache in response to "
       "UpdateMetadata request sent by controller 1 epoch 2 with correlation id 8 (state.change.logger)",
       kind="received", api=UMR, node=5, broker=5, partitions=8, controller_epoch=2, correlation_id=8, detail="1"),
]  # fmt: skip

C = "(kafka.controller.KafkaController)"
STEP = {"kind": "failover", "node": 1}
CONTROLLER = [
    at("0.10", f"{T} INFO [Controller 1]: Broker 1 starting become controller state transition {C}", **STEP,
       event="starting become controller state transition"),
    at("0.10", f"{T} INFO [Controller 1]: Controller 1 incremented epoch to 4 {C}", **STEP, event="incremented epoch",
       controller_epoch=4),
    at("0.10", f"{T} INFO [Controller 1]: Broker 1 is ready to serve as the new controller with epoch 4 {C}",
       kind="loaded", node=1, controller_epoch=4),
    at("0.10", f"{T} INFO [Controller 1]: Broker 1 resigned as the controller {C}", kind="resigned", node=1),
    at("0.10", f"{T} INFO [SessionExpirationListener on 1], ZK expired; shut down all controller components and try to "
       "re-elect (kafka.controller.KafkaController$SessionExpirationListener)", kind="session", detail="EXPIRED"),
    at("0.10", f"{T} INFO [Controller 1]: New leader and ISR for partition [t,0] is "
       f'{{"leader":-1,"leader_epoch":5,"isr":[3]}} {C}', kind="partition", node=1, topic="t", partition=0, leader=-1,
       leader_epoch=5, isr=[3]),
    at("0.10", f"{T} INFO 1 successfully elected as leader (kafka.server.ZookeeperLeaderElector)", kind="elected"),
    at("1.0", "[2018-09-01 00:47:20,564] INFO [Controller id=1495] 1495 successfully elected as the controller "
       "(kafka.controller.KafkaController)", kind="elected", node=1495),
    *(at("1.1", f"{T} INFO [Controller id=1] {step} {C}", **STEP, event=step) for step in (
        "Reading controller epoch from ZooKeeper", "Incrementing controller epoch in ZooKeeper", "Registering handlers",
        "Deleting log dir event notifications", "Deleting isr change notifications", "Initializing controller context",
        "Fetching topic deletions in progress", "Initializing topic deletion manager",
        "Sending update metadata request", "Starting the controller scheduler", "Creating FeatureZNode")),
    at("1.1", f"{T} INFO [Controller id=1] Ready to serve as the new controller with epoch 4 {C}", kind="loaded", node=1,
       controller_epoch=4),
    at("1.1", f"{T} INFO [Controller id=1] Resigned {C}", kind="resigned", node=1),
    at("2.4", f"{T} INFO [Controller id=1] 1 successfully elected as the controller. Epoch incremented to 5 and epoch zk "
       f"version is now 5 {C}", kind="elected", node=1, controller_epoch=5),
    at("1.1", f"{T} INFO [Controller id=1] New broker startup callback for 1,2 {C}", kind="broker", node=1,
       brokers=[1, 2], detail="added"),
    at("0.10", f"{T} INFO [Controller 1]: Broker failure callback for 3 {C}", kind="broker", node=1, brokers=[3],
       detail="dead"),
    at("2.4", f"{T} INFO [Controller id=1] Newly added brokers: , deleted brokers: , bounced brokers: 3,4, all live "
       f"brokers: 1,2,3,4 {C}", kind="broker", node=1, brokers=[3, 4], detail="bounced"),
    at("2.4", f"{T} INFO [Controller id=1] Newly added brokers: 3, deleted brokers: , bounced brokers: , all live brokers: "
       f"1,2,3 {C}", kind="other", node=1, detail=...),
    at("0.10", f"{T} INFO [BrokerChangeListener on Controller 1]: Newly added brokers: 3, deleted brokers: , all live "
       "brokers: 1,2,3 (kafka.controller.ReplicaStateMachine$BrokerChangeListener)", kind="other", node=1, detail=...),
    at("3.9", f"{T} INFO [ControllerEventThread controllerId=1] Starting "
       "(kafka.controller.ControllerEventManager$ControllerEventThread)", kind="other", node=1,
       event="start of the controller thread"),
    at("3.5", f"{T} INFO [Controller id=1] Shutting down broker 3 {C}", kind="broker", node=1, broker=3,
       detail="controlled shutdown"),
    at("0.10", f"{T} INFO [Topic Deletion Manager 1], Deletion of topic my.t-x successfully completed "
       "(kafka.controller.TopicDeletionManager)", kind="topic_deleted", node=1, topic="my.t-x"),
    at("2.4", f"{T} INFO [Topic Deletion Manager 1] Deletion of topic t successfully completed "
       "(kafka.controller.TopicDeletionManager)", kind="topic_deleted", node=1, topic="t"),
    at("0.10", f"{T} INFO [Controller 1]: Partition [t,0] completed preferred replica leader election. New leader is 2 {C}",
       kind="other", event="preferred replica leader election", node=1, topic="t", partition=0, leader=2),
    at("3.5", f"{T} INFO [Controller id=1] Partition t-0 completed preferred replica leader election. New leader is 2 {C}",
       kind="other", event="preferred replica leader election", node=1, topic="t", partition=0, leader=2),
    at("1.1", f"{T} INFO [ZooKeeperClient] Session expired. (kafka.zookeeper.ZooKeeperClient)", kind="session",
       detail="EXPIRED"),
    at("2.4", f"{T} DEBUG [RequestSendThread controllerId=1] Something else (kafka.controller.RequestSendThread)",
       kind="other", node=1, detail=...),
    at("0.10", f"{T} INFO [Partition state machine on Controller 1]: Started partition state machine with initial state -> "
       "Map() (kafka.controller.PartitionStateMachine)", kind="other", node=1, detail=...),
    at("1.1", f"{T} INFO [ReplicaStateMachine controllerId=1] Started replica state machine with initial state -> Map() "
       "(kafka.controller.ReplicaStateMachine)", kind="other", node=1, detail=...),
    at("0.10", f"{T} INFO [Controller-1-to-broker-2-send-thread], Starting (kafka.controller.RequestSendThread)",
       kind="other", node=1, detail=...),
]  # fmt: skip

SERVER = [
    at("0.10", f"{T} INFO [ReplicaFetcherManager on broker 5] Removed fetcher for partitions [t,0],[t,1] "
       "(kafka.server.ReplicaFetcherManager)", kind="other", event="change of fetchers", node=5),
    at("2.4", f"{T} INFO [ReplicaFetcherManager on broker 5] Removed fetcher for partitions Set(t-0, t-1) "
       "(kafka.server.ReplicaFetcherManager)", kind="other", event="change of fetchers", node=5),
    at("0.10", f"{T} INFO Partition [t,0] on broker 5: Shrinking ISR for partition [t,0] from 5,6 to 5 "
       "(kafka.cluster.Partition)", kind="isr", event="shrink", node=5, leader=5, topic="t", partition=0, isr=[5],
       detail="5,6"),
    at("0.10", f"{T} INFO Partition [t,0] on broker 5: Expanding ISR for partition t-0 from 5 to 5,6 "
       "(kafka.cluster.Partition)", kind="isr", event="expand", node=5, leader=5, topic="t", partition=0, isr=[5, 6],
       detail="5"),
    at("1.1", f"{T} INFO [Partition t-x-0 broker=5] Shrinking ISR from 5,6 to 5 (kafka.cluster.Partition)", kind="isr",
       event="shrink", node=5, leader=5, topic="t-x", partition=0, isr=[5], detail="5,6"),
    at("2.4", f"{T} INFO [Partition t-0 broker=5] Shrinking ISR from 5,6 to 5. Leader: (highWatermark: 1, endOffset: 2). Out "
       "of sync replicas: (brokerId: 6, endOffset: 1). (kafka.cluster.Partition)", kind="isr", event="shrink", node=5,
       leader=5, topic="t", partition=0, isr=[5], detail="5,6"),
    at("1.1", f"{T} INFO [Partition t-0 broker=5] Expanding ISR from 5 to 5,6 (kafka.cluster.Partition)", kind="isr",
       event="expand", node=5, leader=5, topic="t", partition=0, isr=[5, 6], detail="5"),
    at("2.4", f"{T} INFO [Partition t-0 broker=5] ISR updated to [5,6] and zkVersion updated to [8] (kafka.cluster.Partition)",
       kind="isr", event="updated", node=5, leader=5, topic="t", partition=0, isr=[5, 6], partition_epoch=8),
    at("2.8", f"{T} INFO [Partition t-0 broker=5] ISR updated to 5,6 and version updated to [8] (kafka.cluster.Partition)",
       kind="isr", event="updated", node=5, leader=5, topic="t", partition=0, isr=[5, 6], partition_epoch=8),
    at("3.5", f"{T} INFO [Partition t-0 broker=5] ISR updated to 5 (under-min-isr) and version updated to 8 "
       "(kafka.cluster.Partition)", kind="isr", event="updated", node=5, leader=5, topic="t", partition=0, isr=[5],
       partition_epoch=8),
    at("3.9", f"{T} INFO [Partition t-0 broker=5] ISR updated to 5,6  and version updated to 9 (kafka.cluster.Partition)",
       kind="isr", event="updated", node=5, leader=5, topic="t", partition=0, isr=[5, 6], partition_epoch=9),
    at("1.1", f"{T} INFO [Partition t-0 broker=5] t-0 starts at Leader Epoch 3 from offset 10. Previous Leader Epoch was: 2 "
       "(kafka.cluster.Partition)", kind="handled", node=5, broker=5, topic="t", partition=0, leader_epoch=3),
    at("0.10", f"{T} INFO [Kafka Server 5], Starting controlled shutdown (kafka.server.KafkaServer)", kind="broker", node=5,
       broker=5, detail="asks for a controlled shutdown"),
    at("3.5", f"{T} INFO [KafkaServer id=5] Starting controlled shutdown (kafka.server.KafkaServer)", kind="broker",
       node=5, broker=5, detail="asks for a controlled shutdown"),
    at("2.4", f"{T} INFO [KafkaServer id=5] Controlled shutdown succeeded (kafka.server.KafkaServer)", kind="broker",
       node=5, broker=5, detail="was allowed to shut down"),
    at("3.5", f"{T} INFO [KafkaServer id=5] Controlled shutdown request returned successfully after 12ms "
       "(kafka.server.KafkaServer)", kind="broker", node=5, broker=5, detail="was allowed to shut down"),
    at("0.10", f"{T} INFO [Kafka Server 5], shut down completed (kafka.server.KafkaServer)", kind="broker", node=5,
       broker=5, detail="shut down"),
    at("3.5", f"{T} INFO [KafkaServer id=5] started (kafka.server.KafkaServer)", kind="broker", node=5, broker=5,
       detail="started"),
    at("0.10", f"{T} INFO Registered broker 5 at path /brokers/ids/5 with addresses: x (kafka.utils.ZkUtils)",
       kind="broker", detail="registered", broker=...),
    at("3.9", f"{T} INFO [ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] Node 1 disconnected. "
       "(org.apache.kafka.clients.NetworkClient)", kind="peer_lost", node=2, broker=1, event="disconnected"),
    at("3.9", f"{T} WARN [ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] Connection to node 1 (/127.0.0.1:50275) "
       "could not be established. Node may not be available. (org.apache.kafka.clients.NetworkClient)",
       kind="peer_lost", node=2, broker=1, event="connection refused"),
    at("2.8", f"{T} INFO [ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] Error sending fetch request "
       "(sessionId=431997975, epoch=15) to node 1: (org.apache.kafka.clients.FetchSessionHandler)", kind="peer_lost",
       node=2, broker=1, event="fetch failed"),
    at("0.10", f"{T} WARN [ReplicaFetcherThread-0-1], Error in fetch kafka.server.ReplicaFetcherThread$FetchRequest@1 "
       "(kafka.server.ReplicaFetcherThread)", kind="peer_lost", broker=1, event="fetch failed"),
    # A controller's connection is lost also when it is idle.
    at("3.9", f"{T} INFO [Controller id=2, targetBrokerId=3] Node 3 disconnected. "
       "(org.apache.kafka.clients.NetworkClient)", kind="other", node=2, detail=...),
    at("3.5", f"{T} WARN Client session timed out, have not heard from server in 4003ms for session id 0x100 "
       "(org.apache.zookeeper.ClientCnxn)", kind="session", detail="TIMED_OUT", duration_us=4_003_000),
    at("3.5", f"{T} INFO Session establishment complete on server /127.0.0.1:45281, session id = 0x1, negotiated timeout "
       "= 6000 (org.apache.zookeeper.ClientCnxn)", kind="session", detail="ESTABLISHED", duration_us=6_000_000),
    at("3.5", f"{T} INFO Cluster ID = RFdf_HY2-TqOdVV1zfat4PA (kafka.server.KafkaServer)", kind="cluster_id",
       detail="RFdf_HY2-TqOdVV1zfat4PA"),
    at("2.8", f"{T} INFO Registered kafka:type=kafka.Log4jController MBean (kafka.utils.Log4jControllerRegistration$)",
       kind="broker", detail="starting", broker=...),
    at("3.5", f"{T} INFO [SocketServer listenerType=ZK_BROKER, nodeId=5] Started acceptors (kafka.network.SocketServer)",
       kind="other", detail=...),
]  # fmt: skip
CONTROLLER += [
    at("3.9", f"{T} INFO [Controller id=3] Currently active brokers in the cluster: Set(2, 3) "
       "(kafka.controller.KafkaController)", kind="active", node=3, brokers=[2, 3]),
    at("0.10", f"{T} INFO [Controller 3]: Currently active brokers in the cluster: Set() "
       "(kafka.controller.KafkaController)", kind="active", node=3),
]  # fmt: skip
STATE_CHANGE += [
    at("3.5", f"{T} INFO [Controller id=2 epoch=3] Sent LeaderAndIsr request (Leader:1,ISR:2,1,LeaderRecoveryState:"
       "RECOVERED,LeaderEpoch:13,ZkVersion:18,ControllerEpoch:3) with new replica assignment ReplicaAssignment("
       "replicas=2,3,1, addingReplicas=3, removingReplicas=1) to leader 1 for partition being reassigned two-copies-3 "
       "(state.change.logger)", kind="reassigning", node=2, epoch=3, topic="two-copies", partition=3, leader=1,
       leader_epoch=13, isr=[2, 1], partition_epoch=18, controller_epoch=3, recovery_state=0, replicas=[2, 3, 1],
       detail="3"),
    at("2.8", f"{T} INFO [Controller id=2 epoch=3] Sent LeaderAndIsr request (Leader:1,ISR:1,3,LeaderEpoch:14,ZkVersion:20,"
       "ControllerEpoch:3) with new replica assignment ReplicaAssignment(replicas=2,3, addingReplicas=, "
       "removingReplicas=) to leader 1 for partition being reassigned t-0 (state.change.logger)", kind="reassigning",
       node=2, epoch=3, topic="t", partition=0, leader=1, leader_epoch=14, isr=[1, 3], partition_epoch=20,
       controller_epoch=3, replicas=[2, 3]),
]  # fmt: skip
SERVER += [
    at("0.10", f"{T} INFO zookeeper state changed (Expired) (org.I0Itec.zkclient.ZkClient)", kind="session",
       detail="EXPIRED"),
    at("0.10", f"{T} INFO zookeeper state changed (SyncConnected) (org.I0Itec.zkclient.ZkClient)", kind="other",
       detail=...),
    at("0.10", f"{T} INFO [GroupCoordinator 1]: Preparing to restabilize group my group with old generation 7 "
       "(kafka.coordinator.GroupCoordinator)", kind="group_rebalance", node=1, broker=1, detail="my group"),
    at("1.1", f"{T} INFO [GroupCoordinator 1]: Preparing to rebalance group billing with old generation 7 "
       "(__consumer_offsets-5) (kafka.coordinator.group.GroupCoordinator)", kind="group_rebalance", node=1, broker=1,
       detail="billing"),
    at("3.0", f"{T} INFO [GroupCoordinator 1]: Preparing to rebalance group billing in state PreparingRebalance with old "
       "generation 7 (__consumer_offsets-5) (reason: Adding new member m with group instance id None) "
       "(kafka.coordinator.group.GroupCoordinator)", kind="group_rebalance", node=1, broker=1, detail="billing"),
    at("2.8", f"{T} INFO [GroupCoordinator 1]: Stabilized group my group generation 8 (__consumer_offsets-5) with 40 "
       "members (kafka.coordinator.group.GroupCoordinator)", kind="group_stable", node=1, broker=1, detail="my group",
       count=40),
    at("0.10", f"{T} INFO Partition [t,0] on broker 1: Cached zkVersion [54] not equal to that in zookeeper, skip updating "
       "ISR (kafka.cluster.Partition)", kind="known_bug", event="KAFKA-2729", node=1, broker=1, topic="t",
       partition=0),
    at("2.4", f"{T} INFO [Partition a-b-0 broker=1] Cached zkVersion 54 not equal to that in zookeeper, skip updating ISR "
       "(kafka.cluster.Partition)", kind="known_bug", event="KAFKA-2729", node=1, broker=1, topic="a-b", partition=0),
    at("2.8", f"{T} ERROR Error while creating ephemeral at /brokers/ids/1, node already exists and owner "
       "'72057' does not match current session '72058' (kafka.zk.KafkaZkClient$CheckedEphemeral)", kind="known_bug",
       event="KAFKA-7165", broker=1),
]  # fmt: skip
SERVER += [
    at("2.0", f"{T} INFO [GroupCoordinator 1]: Removed 12 offsets associated with deleted partitions: a-1-2-0, x.y_z-11. "
       "(kafka.coordinator.group.GroupCoordinator)", kind="deleted", node=1, broker=1, detail="a-1-2-0, x.y_z-11",
       count=12),
    at("3.9", f"{T} INFO [GroupCoordinator 1]: Removed 0 offsets associated with deleted partitions: t-0. "
       "(kafka.coordinator.group.GroupCoordinator)", kind="deleted", node=1, broker=1, detail="t-0", count=0),
    at("3.9", f"{T} INFO Deleted log for partition t-0 in /data/t-0.5c1b-delete. (kafka.log.LogManager)", kind="other",
       detail=...),
]  # fmt: skip
STATE_CHANGE += [
    at("0.10", f"{T} TRACE Broker 1 deleted partition a-1-0 from metadata cache in response to UpdateMetadata request "
       "sent by controller 2 epoch 3 with correlation id 4 (state.change.logger)", kind="deleted", node=1, broker=1,
       epoch=3, detail="a-1-0"),
    at("2.4", f"{T} TRACE [Broker id=1] Deleted partition t-0 from metadata cache in response to UpdateMetadata request "
       "sent by controller 2 epoch 3 with correlation id 4 (state.change.logger)", kind="deleted", node=1, broker=1,
       epoch=3, detail="t-0"),
]  # fmt: skip
LINES = STATE_CHANGE + CONTROLLER + SERVER

INVENTED = [
    f"{T} INFO [Partition orders-3 broker=1] Changed leader from 1 to 2 (state.change.logger)",
    f"{T} INFO [State Change] New leader elected for partition orders-3: 2 (state.change.logger)",
]
"""Lines of web pages that no Kafka ever wrote."""
