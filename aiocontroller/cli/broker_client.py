"""Asks each broker itself how many bytes its replicas have."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from aiocontroller.cli.controller_client import ask_node, code_name
from aiocontroller.config import load_config
from aiocontroller.controller.shell import inter_broker_listener
from aiocontroller.core.ids import Broker, TopicPartition
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire import log_dirs
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError

WITHIN_S = 15.0

Sizes = dict[TopicPartition, int]
"""Bytes of a replica."""


class BrokerSizes:
    """The bytes of replicas, as their brokers reported them."""

    def __init__(self, sizes: Mapping[int, Sizes], silent: Mapping[int, str]) -> None:
        self.of = sizes
        """Broker -> its replicas' bytes."""
        self.silent = silent
        """Brokers that did not report them -> why."""

    def largest(self) -> Sizes:
        """The largest replica of each partition: a follower that is still copying has less than the others."""
        found: Sizes = {}
        for own in self.of.values():
            for tp, size in own.items():
                found[tp] = max(size, found.get(tp, 0))
        return found


async def ask_sizes(
    world: World, brokers: Sequence[Broker], partitions: Sequence[TopicPartition] | None = None
) -> BrokerSizes:
    """Ask every broker about its replicas of these partitions (None: of all), at the same time."""
    config, _ = load_config(None, os.environ)
    security = Security(config)
    listener = inter_broker_listener(config, list(brokers))

    async def ask(broker: Broker) -> Sizes | str:
        at = broker.endpoint(listener) or broker.endpoints[0]
        try:
            async with asyncio.timeout(WITHIN_S):
                code, sizes = await ask_node(
                    world,
                    security,
                    at,
                    ApiKey.DESCRIBE_LOG_DIRS,
                    lambda version: log_dirs.encode_describe_log_dirs_request(version, partitions),
                    log_dirs.decode_describe_log_dirs_response,
                )
        except (OSError, FrameError, TimeoutError) as error:
            return str(error) or f"no answer within {WITHIN_S:.0f} s"
        return code_name(code) if code else sizes

    asked = [broker for broker in sorted(brokers, key=lambda broker: broker.id) if broker.endpoints]
    async with asyncio.TaskGroup() as tasks:
        asking = {broker.id: tasks.create_task(ask(broker)) for broker in asked}
    answers = {broker: task.result() for broker, task in asking.items()}
    silent = {broker: answer for broker, answer in answers.items() if isinstance(answer, str)}
    return BrokerSizes({broker: answer for broker, answer in answers.items() if not isinstance(answer, str)}, silent)
