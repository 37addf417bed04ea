"""Journals and tables on a real HDFS: a name node and a data node on loopback, which Maven fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pyarrow.parquet as pq
import pyspark
import pytest

from aiocontroller.analytics import batch, stream
from aiocontroller.analytics.dataframes import DUCKDB, SPARK, computing_by
from aiocontroller.analytics.files import HadoopFiles
from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.store import Store
from aiocontroller.java import find_java
from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from benchmarks._spark_master import running
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.histories import history
from tests.integration.analytics.test_store import keeps_the_contract

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
START_S: Final = 300
JARS: Final = Path(pyspark.__file__).parent / "jars"
SERVER: Final = "org.apache.hadoop.hdfs.server"


@pytest.fixture(scope="module")
def hadoop_jar() -> Path:
    """HDFS's servers, of the release whose client Spark brings along."""
    (client,) = JARS.glob("hadoop-client-api-*.jar")
    name = client.name.replace("api", "minicluster")
    found = Path(__file__).parents[3] / ".cache" / "hadoop" / name
    if not found.exists():
        if shutil.which("mvn") is None:
            pytest.skip(f"no {name} and no 'mvn' on PATH to fetch it")
        artifact = f"org.apache.hadoop:hadoop-client-minicluster:{client.stem.rpartition('-')[2]}"
        to = (f"-Dartifact={artifact}", f"-DoutputDirectory={found.parent}")
        subprocess.run(["mvn", "-q", "-B", "dependency:copy", *to], check=True, timeout=600)
    return found


def properties(folder: Path, name: str) -> str:
    own = ("datanode.address", "datanode.http.address", "datanode.ipc.address", "namenode.http-address")
    settings = {
        "fs.defaultFS": name,
        "dfs.namenode.rpc-address": name.removeprefix("hdfs://"),
        **{f"dfs.{each}": "127.0.0.1:0" for each in own},
        "dfs.namenode.name.dir": f"file://{folder}/name",
        "dfs.datanode.data.dir": f"file://{folder}/data",
        "dfs.replication": "1",
    }
    each = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{''.join(each)}</configuration>"


@pytest.fixture
def hdfs(spark_itself: Any, hadoop_jar: Path, tmp_path: Path) -> Iterator[str]:
    name = f"hdfs://127.0.0.1:{free_port()}"
    for file in ("core-site.xml", "hdfs-site.xml"):
        (tmp_path / file).write_text(properties(tmp_path, name))
    path = os.pathsep.join([str(tmp_path), str(hadoop_jar), f"{JARS}/*"])
    java = [str(find_java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", path]
    name_node = [*java, f"{SERVER}.namenode.NameNode"]
    subprocess.run([*name_node, "-format"], check=True, capture_output=True, timeout=START_S)
    data_node = [*java, f"{SERVER}.datanode.DataNode"]
    with running(name_node, tmp_path / "name.log"), running(data_node, tmp_path / "data.log"):
        deadline = time.monotonic() + START_S
        while not capacity_bytes(spark_itself, name):
            assert time.monotonic() < deadline, (tmp_path / "name.log").read_text()[-3000:]
            time.sleep(0.5)
        yield name


def hadoop(spark: Any, name: str) -> Any:
    """The file system, and Hadoop's class of paths."""
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc
    context.hadoopConfiguration().set("dfs.replication", "1")
    path = jvm.org.apache.hadoop.fs.Path
    return path(name).getFileSystem(context.hadoopConfiguration()), path


def capacity_bytes(spark: Any, name: str) -> int:
    """None before a data node has registered."""
    from py4j.protocol import Py4JJavaError

    try:
        return int(hadoop(spark, name)[0].getStatus().getCapacity())
    except Py4JJavaError:
        return 0  # the name node does not listen yet


def test_hdfs_holds_journals_and_tables(
    spark_itself: Any, tmp_path: Path, hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = tmp_path / "in"
    journals.mkdir()
    files, path = hadoop(spark_itself, hdfs)
    with computing_by(SPARK):
        keeps_the_contract(HadoopFiles(spark_itself, f"{hdfs}/contract"))
        for number in (1, 2):
            journal = journals / f"journal-7-1-1-00000{number}.jsonl"
            records = history([1, 2, 3], topics=2) if number == 1 else history([4], topics=1)
            journal.write_bytes(b"".join(lines(records)))
            files.copyFromLocalFile(path(f"file://{journal}"), path(f"{hdfs}/in/{journal.name}"))
            with monkeypatch.context() as patch:
                if number == 1:  # the tables of both are enough: they take Spark ten seconds of a processor
                    patch.setattr(stream, "publish", lambda *_: None)
                batch.run_incremental(spark_itself, [f"{hdfs}/in"], f"{hdfs}/tables")
        gold = Store(spark_itself, f"{hdfs}/tables").gold("windows").removesuffix("/windows")
    assert gold.startswith(f"{hdfs}/tables/runs/")
    files.copyToLocalFile(path(gold), path(f"file://{tmp_path}/gold"))
    with computing_by(DUCKDB):
        batch.run(cast(Any, SmallSession()), [str(journals)], str(tmp_path / "local"))
    for table in SORTED_BY:
        remote, local = (pq.read_table(tmp_path / where / table).to_pylist() for where in ("gold", "local/gold"))
        assert remote == local, table
    assert pq.read_table(tmp_path / "local/gold/windows").num_rows > 0
