"""Real Kafka brokers start, answer, and end as asked (the controller against them is tested elsewhere)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from aiocontroller.java import SMALL_JVM, JavaMissingError, find_java
from aiocontroller.lab.cluster.real_kafka import (
    KafkaMissingError,
    RealKafkaBroker,
    archive_classes,
    kafka_jars,
    kafka_missing,
)


@pytest.mark.kafka
def test_a_broker_registers_answers_and_ends(zk_connect: str, tmp_path: Path) -> None:
    try:
        find_java()
        missing = kafka_missing()
    except JavaMissingError as error:
        missing = str(error)
    if missing:
        pytest.skip(f"real Kafka: {missing}")
    broker = RealKafkaBroker(7, zk_connect, tmp_path)
    client = KazooClient(zk_connect)
    try:
        broker.start()
        client.start()
        assert client.get_children("/brokers/ids") == ["7"]
        broker.suspend()
        deadline = time.monotonic() + 150
        while broker.answers():  # on a busy machine, SIGSTOP takes a moment to stop all threads
            assert time.monotonic() < deadline
        broker.resume()
        broker.stop()
        assert client.get_children("/brokers/ids") == []
    finally:
        client.stop()
        client.close()
        broker.kill()
    assert "shut down completed" in broker.log.read_text()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_takes_its_classes_from_the_archive(zk_connect: str, tmp_path: Path) -> None:
    if missing := kafka_missing():
        pytest.skip(f"real Kafka: {missing}")
    archive_classes()
    broker = RealKafkaBroker(7, zk_connect, tmp_path, jvm=(*SMALL_JVM, "-Xlog:class+load"))
    try:
        broker.start()
    finally:
        broker.kill()
    assert "kafka.server.KafkaServer source: shared objects file (top)" in broker.log.read_text()


def test_without_maven_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("bash", "dirname"):
        path = shutil.which(tool)
        assert path is not None
        (tmp_path / tool).symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kafka_missing("0.0.0") == "no jars of Kafka 0.0.0 and no 'mvn' on PATH to fetch them"
    with pytest.raises(KafkaMissingError, match=r"no jars of Kafka 0\.0\.0: .*no 'mvn' on PATH"):
        kafka_jars("0.0.0")
