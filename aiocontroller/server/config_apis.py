"""Who answers requests about configurations."""

from __future__ import annotations

from aiocontroller.controller.broker_defaults import BrokerDefaults
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.server.alter_configs import AlterConfigs
from aiocontroller.server.apis import Apis, all_versions
from aiocontroller.server.describe_configs import DescribeConfigs
from aiocontroller.wire.apis import ApiKey


def apis(shell: ControllerShell) -> Apis:
    defaults = BrokerDefaults(shell)
    alter = AlterConfigs(shell, defaults)
    return {
        ApiKey.DESCRIBE_CONFIGS: all_versions(ApiKey.DESCRIBE_CONFIGS, DescribeConfigs(shell, defaults).handle),
        ApiKey.ALTER_CONFIGS: all_versions(ApiKey.ALTER_CONFIGS, alter.replace),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: all_versions(ApiKey.INCREMENTAL_ALTER_CONFIGS, alter.change),
    }
