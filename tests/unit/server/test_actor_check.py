"""Who may act: a certificate on the list, or the password and a name; by TLS or on this machine."""

from __future__ import annotations

import pytest

from aiocontroller.authorizer.principals import PrincipalError
from aiocontroller.server import actor_check
from aiocontroller.server.actor_check import Actors, HttpPeer, NotAllowedError

HERE = HttpPeer("127.0.0.1", False, None)
AWAY = HttpPeer("10.0.0.9", True, None)
OPS = "User:CN=ops"


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


def principal_of(certificate: bytes) -> str:
    if certificate == b"nameless":
        raise PrincipalError("found no name")
    return f"User:CN={certificate.decode()}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def actors(clock: Clock, password: str = "sesame", principals: tuple[str, ...] = (OPS,)) -> Actors:
    return Actors(password, principals, principal_of, clock)  # type: ignore[arg-type]


def refused(of: Actors, peer: HttpPeer, name: str = "anna", password: str = "") -> str:
    with pytest.raises(NotAllowedError) as error:
        of.who(peer, name, password)
    return str(error.value)


def test_the_password_and_a_name(clock: Clock) -> None:
    assert actors(clock).who(HERE, " anna ", "sesame") == "'anna' by the page with the actors' password, from 127.0.0.1"
    assert "from 10.0.0.9" in actors(clock).who(AWAY, "größe", "sesame")


def test_a_certificate_on_the_list(clock: Clock) -> None:
    assert actors(clock).who(AWAY._replace(certificate=b"ops"), "", "") == f"{OPS} by the page, from 10.0.0.9"
    for other in (b"reader", b"nameless"):
        assert "password" in refused(actors(clock), AWAY._replace(certificate=other))
    alone = actors(clock, password="")
    assert "User:CN=reader" in refused(alone, AWAY._replace(certificate=b"reader"))
    assert "no certificate" in refused(alone, HERE, password="")
    assert "expected that of one of" in refused(alone, HERE, password="sesame")


def test_this_machine_alone_is_not_enough(clock: Clock) -> None:
    assert "found no password" in refused(actors(clock), HERE)
    assert "actions are disabled" in refused(actors(clock, "", ()), HERE)
    assert "actions are disabled" in refused(actors(clock, "", ()), AWAY._replace(certificate=b"ops"))


def test_no_password_crosses_the_network_as_it_is(clock: Clock) -> None:
    assert "need HTTPS" in refused(actors(clock), AWAY._replace(encrypted=False), password="sesame")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\u202eb", "\x1b[0m", "x" * 61])
def test_a_name_that_the_journal_must_not_have(clock: Clock, name: str) -> None:
    assert "your name" in refused(actors(clock), HERE, name, "sesame")


@pytest.mark.parametrize("password", ["", "sesam", "sesame ", "SESAME", "\udcff", "x" * 10_000])
def test_wrong_passwords(clock: Clock, password: str) -> None:
    assert "a wrong one" in refused(actors(clock), HERE, password=password)


def test_guessing_takes_a_second_each_and_keeps_nobody_else_out(clock: Clock) -> None:
    of = actors(clock)
    refused(of, AWAY, password="a")
    for _ in range(10):
        assert "wait a second" in refused(of, AWAY, password="sesame")
    assert of.who(HERE, "anna", "sesame")
    clock.now_s += actor_check.WAIT_S
    assert of.who(AWAY, "anna", "sesame")


def test_what_is_remembered_of_guesses_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_check, "REMEMBERED", 3)
    of = actors(clock)
    for n in range(10):
        refused(of, AWAY._replace(address=f"10.0.0.{n}"), password="a")
    assert len(of._wrong) == 3
