"""Which connection has to make room for which."""

from __future__ import annotations

from aiocontroller.server.connection_quotas import ConnectionQuotas


class Connection:
    def __init__(self, address: str, name: str, gone: list[str], listener: str = "") -> None:
        self.address, self.name, self._gone, self.listener = address, name, gone, listener

    def evict(self) -> None:
        self._gone.append(self.name)


class House:
    def __init__(self, places: int, **per_listener: int) -> None:
        self.places = places
        self.gone: list[str] = []
        self.quotas = ConnectionQuotas(lambda: self.places, per_listener=per_listener)

    def come(self, address: str, name: str, listener: str = "") -> Connection:
        assert self.quotas.refusal(address, listener) is None
        connection = Connection(address, name, self.gone, listener)
        self.quotas.enter(connection)
        return connection

    def ask(self, connection: Connection) -> None:
        self.quotas.begin(connection)
        self.quotas.end(connection)


def test_silent_ones_go_first_then_idle_ones_then_busy_ones() -> None:
    house = House(3)
    busy, idle, _silent = (house.come("a", name) for name in ("busy", "idle", "silent"))
    house.quotas.begin(busy)
    house.ask(idle)
    newer = house.come("a", "newer")
    assert house.gone == ["silent"]
    house.ask(newer)
    house.quotas.begin(house.come("a", "first to work"))
    assert house.gone == ["silent", "idle"]
    house.quotas.begin(house.come("a", "second to work"))
    assert house.gone == ["silent", "idle", "newer"]
    house.come("a", "last")
    assert house.gone == ["silent", "idle", "newer", "busy"]
    assert len(house.quotas) == 3


def test_the_one_that_was_idle_for_longest_goes() -> None:
    house = House(3)
    first, second, third = (house.come("a", name) for name in ("first", "second", "third"))
    for connection in (first, second, third, first):
        house.ask(connection)
    house.come("a", "fourth")
    assert house.gone == ["second"]


def test_address_with_most_connections_makes_room() -> None:
    house = House(4)
    house.come("a", "alone")
    for number in range(3):
        house.ask(house.come("b", f"crowd {number}"))
    house.come("a", "another")
    assert house.gone == ["crowd 0"]


def test_fewer_places_than_connections() -> None:
    """Brokers have registered meanwhile, each of which takes descriptors."""
    house = House(5)
    for number in range(5):
        house.come("a", str(number))
    house.places = 2
    house.come("a", "new")
    assert len(house.quotas) == 2
    assert house.gone == ["0", "1", "2", "3"]


def test_leaving_twice_is_leaving_once() -> None:
    house = House(2)
    guest = house.come("a", "guest")
    house.quotas.leave(guest)
    house.quotas.leave(guest)
    house.quotas.begin(guest)
    house.quotas.end(guest)
    assert len(house.quotas) == 0


def test_limit_of_an_address() -> None:
    quotas = ConnectionQuotas(lambda: 10, 1, {"b": 2, "c": 0})
    for address in ("a", "b", "b"):
        assert quotas.refusal(address) is None
        quotas.enter(Connection(address, "", []))
    assert quotas.refusal("a") == "a has its 1 connections (max.connections.per.ip)"
    assert quotas.refusal("b") is not None
    assert quotas.refusal("c") is not None
    assert quotas.refusal("d") is None


# -- limits of listeners -----------------------------------------------------------------------------------------------


def test_a_listener_makes_room_among_its_own_connections() -> None:
    house = House(10, INTERNAL=2)
    for number in range(3):
        house.come("crowd", f"outside {number}", "EXTERNAL")
    house.come("a", "first", "INTERNAL")
    second = house.come("a", "second", "INTERNAL")
    house.ask(second)
    house.come("b", "third", "INTERNAL")
    assert house.gone == ["first"]
    house.come("crowd", "outside 3", "EXTERNAL")  # this listener has no limit of its own
    assert house.gone == ["first"]
    assert len(house.quotas) == 6


def test_connections_of_a_listener_that_have_ended_take_no_place_there() -> None:
    house = House(10, INTERNAL=1)
    for number in range(3):
        house.quotas.leave(house.come("a", str(number), "INTERNAL"))
    house.come("a", "last", "INTERNAL")
    assert house.gone == []
    assert len(house.quotas) == 1


def test_the_limit_of_all_holds_on_a_listener_with_a_limit_too() -> None:
    house = House(2, INTERNAL=5)
    for number in range(3):
        house.come("a", str(number), "INTERNAL")
    assert house.gone == ["0"]
    house.come("b", "3", "EXTERNAL")
    assert house.gone == ["0", "1"]


def test_a_listener_without_a_place_refuses() -> None:
    quotas = ConnectionQuotas(lambda: 10, per_listener={"INTERNAL": 0})
    assert quotas.refusal("a", "INTERNAL") == "all 0 places of listener INTERNAL are taken"
    assert quotas.refusal("a", "EXTERNAL") is None


def test_many_silent_addresses_displace_no_active_client() -> None:
    """Brokers have one connection each, and were there first."""
    house = House(3)
    for number in range(2):
        house.ask(house.come(f"broker {number}", f"broker {number}"))
    for number in range(10):
        house.come(f"client {number}", f"client {number}")
    assert house.gone == [f"client {number}" for number in range(9)]
