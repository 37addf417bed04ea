"""The registry of API handlers, and the dispatch of requests to them (Kafka's ``KafkaApis``).

Each family of APIs has its own module and registers its handlers here.  Requests without a handler are refused, never
forwarded to a broker, since they would be sent under this controller's own identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.abc

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError
from aiocontroller.server import (
    acl_apis,
    client_quota_apis,
    config_apis,
    controller_apis,
    coordinator_apis,
    delegation_token_apis,
    leader_apis,
    login_apis,
    metadata_apis,
    own_answers,
    producer_id_api,
)
from aiocontroller.server.apis import HANDLER_TIMEOUT_S, Api, Apis, could_not_answer
from aiocontroller.server.envelope import envelope_api
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name, check_supported
from aiocontroller.wire.errors import FrameError

log = logging.getLogger(__name__)

MAX_RUNNING = 64
"""Handlers that run as tasks at the same time; more wait, at most one per connection."""
LARGE_BYTES, MAX_LARGE_RUNNING = 64 << 10, 1
"""Of these, handlers of large requests; several that wait for the same thing would resume in the same turn."""
SMALL_BYTES = 1 << 10
"""Decoding takes up to 5 ms per KiB, so at most one request larger than this starts per turn of the loop."""

FAMILIES: tuple[Callable[[ControllerShell], Apis], ...] = (
    controller_apis.apis,
    coordinator_apis.apis,
    leader_apis.apis,
    metadata_apis.apis,
    own_answers.apis,
    config_apis.apis,
    acl_apis.apis,
    producer_id_api.apis,
    login_apis.apis,
    client_quota_apis.apis,
    delegation_token_apis.apis,
)


class KafkaApis:
    """Dispatches requests to their handlers; ``tasks`` own the coroutines."""

    def __init__(self, shell: ControllerShell, tasks: anyio.abc.TaskGroup) -> None:
        self.shell = shell
        self._tasks = tasks
        self._running = anyio.CapacityLimiter(MAX_RUNNING)
        self._large = anyio.CapacityLimiter(MAX_LARGE_RUNNING)
        self._beginning = anyio.Lock()
        self._apis: dict[int, Api] = {}
        for family in FAMILIES:
            apis = family(shell)
            assert self._apis.keys().isdisjoint(apis), "an API has one handler"
            self._apis.update(apis)
        self._apis[ApiKey.ENVELOPE] = envelope_api(shell, self.handle)

    def offered(self) -> Mapping[int, VersionRange]:
        """The versions in ApiVersions answers."""
        answered = {api: each.versions for api, each in self._apis.items()}
        return {ApiKey.API_VERSIONS: VersionRange(0, 4), **answered}

    def answers(self, api: int) -> bool:
        """Whether this node serves the API."""
        return api in self._apis

    def handle(self, request: KafkaRequest) -> None:
        """Dispatch a request; after FrameError and UnsupportedApiError the caller closes the connection."""
        context = request.context
        api = self._apis.get(context.api)
        if api is None:
            request.refuse(f"{api_name(context.api)} version {context.version} is not served here")
            return
        check_supported(context.api, context.version, {context.api: api.versions})
        try:
            waiting = api.handle(request)
        except FrameError:
            raise
        except Exception as error:
            could_not_answer(request, error)
            return
        if waiting is not None:
            self._tasks.start_soon(self._run, request, waiting, name=api_name(context.api))

    async def _run(self, request: KafkaRequest, handler: Coroutine[Any, Any, None]) -> None:
        """Run a handler; it is dropped if the connection ends before it starts, but a started one runs to its end."""
        size = len(request.body)
        try:
            with anyio.CancelScope() as waiting:
                request.when_gone = waiting.cancel
                async with self._large if size > LARGE_BYTES else nullcontext(), self._running:
                    if size > SMALL_BYTES:
                        await self._turn()
                    request.when_gone = None
                    with anyio.fail_after(HANDLER_TIMEOUT_S):
                        await handler
        except AioControllerError as error:
            request.refuse(str(error))
        except TimeoutError:
            request.fail(f"{api_name(request.context.api)} could not be answered in time")
        except Exception as error:
            could_not_answer(request, error)
        finally:
            handler.close()  # in case it never started

    async def _turn(self) -> None:
        """Wait until the event loop has run once since the last large request started."""
        async with self._beginning:
            await asyncio.sleep(0)
