"""Made-up histories of a migration to KRaft and of the way back."""

from __future__ import annotations

from typing import Any

from aiocontroller.zookeeper import paths
from tests.unit.lab.checkers.history_story import Story, case

KRAFT_EPOCH = 5


def _takes_role(s: Story, session: int, epoch: int, *, kraft_epoch: int = -1) -> Any:
    """The session writes the controller epoch and ``/controller``; returns it as a writer."""
    winner = s.won._replace(session=session)
    s.change(paths.CONTROLLER_EPOCH, b"%d" % epoch, 1, winner)
    named = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":%d}' % kraft_epoch
    s.change(paths.CONTROLLER, named, 0, winner)
    return winner


def _kraft_leads(s: Story) -> None:
    """It writes a state, too."""
    kraft = _takes_role(s, 8, 2, kraft_epoch=KRAFT_EPOCH)
    s.state(2, 1, (2,), controller_epoch=KRAFT_EPOCH, writer=kraft)


@case()
def a_kraft_controller_writes_states_of_its_own_epoch(s: Story) -> None:
    _kraft_leads(s)


@case("I2")
def a_kraft_controller_writes_a_state_of_zookeepers_epoch(s: Story) -> None:
    kraft = _takes_role(s, 8, 2, kraft_epoch=KRAFT_EPOCH)
    s.state(2, 1, (2,), controller_epoch=2, writer=kraft)


@case()
def a_rollback_begins_above_what_kraft_has_written(s: Story) -> None:
    _kraft_leads(s)
    after = _takes_role(s, 9, KRAFT_EPOCH + 1)
    s.state(2, 2, (2,), controller_epoch=KRAFT_EPOCH + 1, version=2, writer=after)


@case("I2")
def a_rollback_begins_with_the_epoch_of_kraft(s: Story) -> None:
    _kraft_leads(s)
    _takes_role(s, 9, KRAFT_EPOCH)
    assert str(KRAFT_EPOCH) in s.history.violations[-1].detail
    assert s.history.violations[-1].subject == paths.CONTROLLER_EPOCH


@case("I2")
def a_rollback_begins_below_what_kraft_has_written(s: Story) -> None:
    _kraft_leads(s)
    _takes_role(s, 9, 3)


@case()
def a_rollback_follows_a_kraft_controller_that_wrote_nothing(s: Story) -> None:
    _takes_role(s, 8, 2, kraft_epoch=KRAFT_EPOCH)
    _takes_role(s, 9, 3)


@case()
def another_kraft_controller_follows(s: Story) -> None:
    _kraft_leads(s)
    _takes_role(s, 9, 3, kraft_epoch=KRAFT_EPOCH + 1)


@case("I2")
def a_rollback_follows_the_second_kraft_controller(s: Story) -> None:
    _kraft_leads(s)
    _takes_role(s, 9, 3, kraft_epoch=1)
    _takes_role(s, 10, 4)


@case()
def the_next_controller_but_one_may_be_as_any_other(s: Story) -> None:
    """A controller's registration can be written again in its own epoch."""
    _kraft_leads(s)
    after = _takes_role(s, 9, KRAFT_EPOCH + 1)
    s.state(2, 2, (2,), controller_epoch=KRAFT_EPOCH + 1, version=2, writer=after)
    s.change(paths.CONTROLLER, b'{"version":1,"brokerid":1,"timestamp":"1"}', 0, after)


@case("I2")
def an_old_broker_takes_the_role_after_kraft(s: Story) -> None:
    """Before 3.4 a registration does not mention KRaft."""
    _kraft_leads(s)
    s.change(paths.CONTROLLER, b'{"version":1,"brokerid":1,"timestamp":"1"}', 0, s.won)


@case("I2")
def a_damaged_registration_follows_kraft(s: Story) -> None:
    _kraft_leads(s)
    s.change(paths.CONTROLLER, b"{", 0, s.won)
