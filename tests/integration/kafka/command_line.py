"""Kafka's own command-line tools: kafka-topics.sh and the others, without the shell scripts.

Old releases lack some of them, and some of theirs use ZooKeeper instead of brokers.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from aiocontroller.java import SMALL_JVM, find_java
from aiocontroller.lab.cluster.real_kafka import kafka_jars, kafka_tools_jars
from tests.integration.kafka.releases import number

_IN_CORE = {
    "topics": "kafka.admin.TopicCommand",
    "reassign-partitions": "kafka.admin.ReassignPartitionsCommand",
    "leader-election": "kafka.admin.LeaderElectionCommand",
    "configs": "kafka.admin.ConfigCommand",
}
_SINCE_3_7 = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
}
_BEFORE_2_4 = {"leader-election": "kafka.admin.PreferredReplicaLeaderElectionCommand"}
_BY_BROKERS_SINCE = {"reassign-partitions": (2, 6), "configs": (2, 5)}
"""For the tools for topics; earlier ones have only ``--zookeeper``."""
_LOG4J = """log4j.rootLogger=ERROR, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.SimpleLayout
"""


class CommandLine:
    """The tools of one release; those before 2.6 need ``zookeeper``."""

    def __init__(self, version: str, bootstrap: str, folder: Path, *, zookeeper: str = "") -> None:
        self.folder = folder
        self._version = number(version)
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper
        self._log4j = folder / "tools.log4j.properties"
        self._log4j.write_text(_LOG4J)
        self._mains = _IN_CORE
        if self._version >= (3, 7):
            self._mains = _IN_CORE | _SINCE_3_7
        elif self._version < (2, 4):
            self._mains = _IN_CORE | _BEFORE_2_4
        folders = [kafka_jars(version)] + ([kafka_tools_jars(version)] if self._version >= (3, 7) else [])
        self._class_path = ":".join(f"{jars}/*" for jars in folders)

    def run(self, tool: str, *arguments: str) -> str:
        """Run a tool; return what it printed, or raise AssertionError with that if it fails."""
        command = [str(find_java()), *SMALL_JVM, "-Xmx128m", f"-Dlog4j.configuration=file:{self._log4j}"]
        command += ["-cp", self._class_path, self._mains[tool], *self._cluster(tool), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"kafka-{tool} {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def elect_preferred(self, file: str) -> str:
        """Elect the preferred leaders of the partitions that ``file`` names."""
        kind = ["--election-type", "preferred"] if self._version >= (2, 4) else []
        return self.run("leader-election", *kind, "--path-to-json-file", file)

    def verified(self, file: str) -> bool:
        """Whether the reassignment of the plan's one partition is over."""
        output = self.run("reassign-partitions", "--reassignment-json-file", file, "--verify")
        return ("is complete" if self._version >= (2, 6) else "completed successfully") in output

    def _cluster(self, tool: str) -> list[str]:
        if self._version < _BY_BROKERS_SINCE.get(tool, (0,)):
            return ["--zookeeper", self._zookeeper]
        return ["--bootstrap-server", self._bootstrap]

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)
