"""``aiocontroller cluster``: kills, stops and starts processes of a cluster that ``up`` runs."""

from __future__ import annotations

from pathlib import Path

import click

from aiocontroller.cli.finding import data_option, find_data
from aiocontroller.cli.output import JSON, print_json, say


@click.group()
def cluster() -> None:
    """Kill, stop and start processes of the cluster that 'up' runs."""


MODES = ("zookeeper", "migration", "kraft")


def _command(name: str, help_: str, *, of_broker: bool = False, starts_broker: bool = False) -> None:
    """Add a command, which sends one request to the process that runs the cluster."""

    def send(data: Path | None, as_json: bool, broker: int | None = None, mode: str | None = None) -> None:
        from aiocontroller.lab.cluster.control import send_command

        answer = send_command(find_data(data), name, broker=broker, mode=mode)
        if as_json:
            print_json({"command": name, "broker": broker, **answer} if of_broker else {"command": name, **answer})
        else:
            done = str(answer["done"])
            say(f"{done[:1].upper()}{done[1:]}.")

    decorated = data_option(JSON(send))
    if starts_broker:
        decorated = click.option(
            "--mode",
            type=click.Choice(MODES),
            help="Mode of a real broker during a migration (default: as before).",
        )(decorated)
    if of_broker:
        decorated = click.argument("broker", type=click.IntRange(0))(decorated)
    cluster.command(name=name, help=help_)(decorated)


_command("kill-broker", "Kill a broker by SIGKILL, like a crash.", of_broker=True)
_command("stop-broker", "Stop a broker by a controlled shutdown.", of_broker=True)
_command("start-broker", "Restart a broker, or add one.", of_broker=True, starts_broker=True)
_command("restart-broker", "Stop a broker by a controlled shutdown, and start it.", of_broker=True, starts_broker=True)
_command("kill-controller", "Kill the controller by SIGKILL.")
_command("stop-controller", "Stop the controller; it gives the role back first.")
_command("start-controller", "Restart the controller.")
_command("kill-zookeeper-session", "End the controller's ZooKeeper session.")
_command("start-kraft-controller", "Start the KRaft controller of a migration.")
_command("stop-kraft-controller", "Stop the KRaft controller.")
_command("finalize-migration", "Restart the KRaft controller without ZooKeeper: there is no way back.")
