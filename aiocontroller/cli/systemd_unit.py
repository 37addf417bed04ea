"""``aiocontroller systemd-unit``: prints a unit file for this installation."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from aiocontroller.cli.output import say
from aiocontroller.core.errors import BadInputError

UNIT = """\
# aiocontroller, a controller for ZooKeeper-mode Kafka; written by 'aiocontroller systemd-unit'
[Unit]
Description=Kafka controller (aiocontroller)
Wants=network-online.target
After=network-online.target

[Service]
# Ready when the ports are open and ZooKeeper is connected; until then it waits for ZooKeeper, however long.
Type=notify
NotifyAccess=main
TimeoutStartSec=infinity
ExecStart={program} run --config {config} --data /var/lib/{state} --log-format {log_format}
# Reads certificates and keys again; the log says whether it could.
ExecReload=/bin/kill -HUP $MAINPID
User={user}
StateDirectory={state}
StateDirectoryMode=0700
UMask=0077

# An orderly end takes up to 5 s, 15 s during a release.
TimeoutStopSec=20
Restart=on-failure
RestartSec=5
# Wrong options or properties: a restart does not help.
RestartPreventExitStatus=2
# The event loop reports several times within this interval; a loop that hangs is ended, and the standby takes over.
WatchdogSec=30
LimitNOFILE=65536
# If memory runs out, a check that was started from the page is killed first; the controller goes on.
OOMPolicy=continue

# It needs the network, its state folder and nothing else.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome={protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""
HOMES = ("/home/", "/root/", "/run/user/")
HIDDEN = ("/tmp/", "/var/tmp/", "/dev/")
"""A service has its own folders of these names."""
RUNTIME = (Path(sys.executable), Path(sys.base_prefix), Path(__file__))
"""The interpreter, its library and this package, which may be elsewhere than the program."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}")
PLAIN = re.compile(r"/[A-Za-z0-9_./+@:,=-]*")


@click.command(name="systemd-unit")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/aiocontroller/server.properties"),
    show_default=True,
    help="The properties file of 'aiocontroller run --config'.",
)
@click.option("--user", default="aiocontroller", show_default=True, help="The user that runs it.")
@click.option("--state", default="aiocontroller", show_default=True, metavar="NAME", help="Its folder in /var/lib.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of its log lines.",
)
def systemd_unit(config: Path, user: str, state: str, log_format: str) -> None:
    """Print a unit file that runs this installation as a service.

    'aiocontroller systemd-unit > /etc/systemd/system/aiocontroller.service' installs it.  docs/operating.md says more.
    """
    for option, name in (("--user", user), ("--state", state)):
        if not NAME.fullmatch(name):
            raise BadInputError(f"{option}: {name!r} is not a name: letters, digits, _ and -, at most 31")
    script = Path(sys.argv[0]).absolute()
    as_module = script.name == "__main__.py"  # python -m aiocontroller
    program = Path(sys.executable) if as_module else script
    for what, path in (("--config", config), ("the path of this program", program)):
        if not PLAIN.fullmatch(str(path)):
            raise BadInputError(f"{what}: {str(path)!r} must be absolute, without blanks and special characters")
        if str(path.resolve()).startswith(HIDDEN):
            raise BadInputError(f"{what}: {str(path)!r} is in a folder that is hidden from a service: move it")
    say(
        UNIT.format(
            program=f"{program} -m aiocontroller" if as_module else program,
            config=config,
            user=user,
            state=state,
            log_format=log_format,
            protect_home="read-only" if any(map(_is_in_a_home, (program, config, *RUNTIME))) else "yes",
        ).rstrip("\n")
    )


def _is_in_a_home(path: Path) -> bool:
    return f"{path.resolve()}/".startswith(HOMES)
