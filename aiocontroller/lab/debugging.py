"""The pages that ``aiocontroller run --debug`` serves besides the controller's own: ``POST /debug/NAME``."""

from __future__ import annotations

from collections.abc import Mapping

from aiocontroller.lab.checkers.inspection import Inspection, inspect
from aiocontroller.lab.processes.resources import Resources, resources
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.server.http import DebugHandler
from aiocontroller.service import Service


def handlers(service: Service) -> Mapping[str, DebugHandler]:
    async def inspected() -> Inspection:
        return inspect(service)

    async def measured() -> Resources:
        return resources(service)

    return {
        "expire-session": lambda: expire_session(service.client),
        "inspect": inspected,
        "resources": measured,
    }
