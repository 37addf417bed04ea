"""What a simulated broker answers, and when."""

from __future__ import annotations

import asyncio

from aiocontroller.lab.cluster.broker_server import BrokerServer
from aiocontroller.lab.cluster.generations import GENERATIONS
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.lab.cluster.simulated_settings import Settings
from aiocontroller.lab.virtual_time import turns, virtual_time
from aiocontroller.net.real import real_world
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import encode_request_header


@virtual_time
async def test_a_control_request_waits_until_the_broker_knows_its_epoch() -> None:
    """ZooKeeper's answer may be late, and the controller may know of the registration before."""
    generation, metadata = GENERATIONS["2.4"], MetadataCache(ids_may_go=False)
    replicas = ReplicaManager(2, metadata, replica_lag_time_max_ms=1_000, generation=generation)
    server = BrokerServer(
        real_world(),
        metadata,
        replicas,
        settings=Settings(generation),
        spawn=lambda task: None,
        changed=lambda: None,
    )
    api, version = ApiKey.UPDATE_METADATA, 6
    sent = cold.request(
        api, version, controller_id=7, controller_epoch=8, broker_epoch=90, topic_states=[], live_brokers=[]
    )
    header = encode_request_header(api, version, 1, "controller")
    frame = header + cold.encode_request(api, version, sent)
    waiting = asyncio.ensure_future(server.answer(frame, server.connection()))
    await turns()
    assert not waiting.done()
    server.registered(90)
    _, body = await waiting
    assert cold.decode_response(api, version, body).error_code == 0
    assert metadata.controller_id == 7
