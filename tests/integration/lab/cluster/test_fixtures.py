"""The shared fixtures: chroots exist, are empty, and belong to one test."""

from __future__ import annotations

from kazoo.client import KazooClient


def test_a_chroot_is_there_and_empty(zk_connect: str) -> None:
    client = KazooClient(zk_connect)
    client.start()
    assert client.get_children("/") == []
    client.create("/mine")
    client.stop()
    client.close()


def test_the_next_one_is_another(zk_connect: str) -> None:
    test_a_chroot_is_there_and_empty(zk_connect)
