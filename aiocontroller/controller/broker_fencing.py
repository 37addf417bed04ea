"""Ends a broker that hangs: runs an operator's command (``aiocontroller.fence.command``), such as a power switch.

A frozen broker keeps its connections, so clients of the partitions that it led wait for their request timeouts,
although other brokers lead them by now.  Once the process is gone, the connections end, too.

The command runs for a broker
 1. that early detection suspects because it is silent, and that is still silent ``aiocontroller.fence.after.ms`` after
    the suspicion (one that refuses connections by now has ended already, and may be starting again); or that was judged
    sick, had leaders that were moved, and no longer answers at all;
 2. unless so many brokers seem to be away that our own network may be at fault;
 3. that no longer leads anything, and is in no ISR;
 4. while this controller is the active one: ZooKeeper confirms the fence right before.

It runs once for each suspicion or sickness, and for one broker at a time.
"""

from __future__ import annotations

from aiocontroller.controller.fence_command import FenceCommand
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.steps import carry_out_steps
from aiocontroller.core.events import FenceBroker
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.suspicions import has_moved_off, is_stale_registration

LOOK_AGAIN_S = 0.5
SICK_LOOK_AGAIN_S = 2.0


def schedule_fencing(shell: ControllerShell, suspicion: Suspicion) -> None:
    """Check a newly suspected broker again when the configured time has passed."""
    if shell.fence_command is not None and suspicion.reason == "silent":
        _schedule(shell, FenceBroker(suspicion.peer, suspicion.epoch), shell.fence_command.after_s)


def schedule_fencing_of_sick(shell: ControllerShell, broker: int, broker_epoch: int) -> None:
    """Watch a sick broker whose leaders have moved, to end it if it falls silent."""
    if shell.fence_command is not None:
        _schedule(shell, FenceBroker(broker, broker_epoch), SICK_LOOK_AGAIN_S)


def _schedule(shell: ControllerShell, event: FenceBroker, delay_s: float) -> None:
    shell.queue.schedule(f"fence command for {event.broker}", delay_s, event)


async def fence_broker(shell: ControllerShell, event: FenceBroker) -> None:
    """Run the command if the broker is still silent and nothing depends on it; else look again later."""
    context, command = shell.context, shell.fence_command
    suspected = is_stale_registration(context, event.broker, event.broker_epoch)
    sick = context.sick is not None and context.sick[:2] == (event.broker, event.broker_epoch)
    if command is None or not (suspected or sick):
        return
    if not (
        _may_be_ended(shell, command, event.broker, suspected=suspected)
        and await carry_out_steps(shell, has_moved_off(context, event.broker))
        and _may_be_ended(shell, command, event.broker, suspected=suspected)  # it may have answered meanwhile
    ):
        _schedule(shell, event, LOOK_AGAIN_S if suspected else SICK_LOOK_AGAIN_S)
        return
    await shell.zk.check_controller_epoch(fence=context.epoch_zk_version)
    endpoint = shell.endpoint_of(context.brokers[event.broker])
    command.begin(event.broker, event.broker_epoch, endpoint.host if endpoint is not None else "")


def _may_be_ended(shell: ControllerShell, command: FenceCommand, broker: int, *, suspected: bool) -> bool:
    channels = shell.channels
    assert channels is not None
    if suspected:
        silent = not channels.answers_again(broker) and not channels.refusing_s(broker)
    else:
        silent = shell.sickness is not None and shell.sickness.is_silent(broker)
    return silent and not command.busy and not channels.suspects_own_network
