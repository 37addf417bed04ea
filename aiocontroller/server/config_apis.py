"""Handlers of requests about configs."""

from __future__ import annotations

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.server.alter_configs import AlterConfigs
from aiocontroller.server.apis import Apis, all_versions
from aiocontroller.server.describe_configs import DescribeConfigs
from aiocontroller.wire.apis import ApiKey


def apis(shell: ControllerShell) -> Apis:
    """DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""
    alter = AlterConfigs(shell)
    return {
        ApiKey.DESCRIBE_CONFIGS: all_versions(ApiKey.DESCRIBE_CONFIGS, DescribeConfigs(shell).handle),
        ApiKey.ALTER_CONFIGS: all_versions(ApiKey.ALTER_CONFIGS, alter.replace),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: all_versions(ApiKey.INCREMENTAL_ALTER_CONFIGS, alter.change),
    }
