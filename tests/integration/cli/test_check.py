"""``aiocontroller check`` as a process, on a real ZooKeeper that holds a cluster with faults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_status import cluster, put_state

__all__ = ["cluster"]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "check.md"


@pytest.mark.usefixtures("cluster")
def test_it_prints_what_the_page_shows(zk_connect: str) -> None:
    done = aiocontroller("check", "--zookeeper", zk_connect, code=4)
    printed = re.sub(r"\(zxid 0x[0-9a-f]+\)", "(zxid …)", done.stdout)
    block = PAGE.read_text(encoding="utf-8").partition("-->\n\n")[2].partition("\n\n**For cron.**")[0]
    assert printed.splitlines() == [line.removeprefix("    ") for line in block.splitlines()]


def changes(kazoo: KazooClient, path: str = "/") -> dict[str, int]:
    found = {path: kazoo.get(path)[1].mzxid}
    for child in kazoo.get_children(path):
        if path != "/" or child != "zookeeper":
            found |= changes(kazoo, f"{path.rstrip('/')}/{child}")
    return found


@pytest.mark.usefixtures("cluster")
def test_it_changes_no_znode_and_compares_with_last_week(zk_connect: str, kazoo: KazooClient, tmp_path: Path) -> None:
    before, file = changes(kazoo), tmp_path / "evidence.json"
    aiocontroller("check", "--zookeeper", zk_connect, "--out", str(file), code=4)
    assert changes(kazoo) == before
    put_state(kazoo, "t", 3, 2, [2, 1])
    done = aiocontroller("check", "--zookeeper", zk_connect, "--since", str(file), "--json", code=4)
    found = json.loads(done.stdout)
    assert [finding["kind"] for finding in found["difference"]["gone"]] == ["never-led"]
    assert not found["difference"]["new"]
    assert "never-led" not in {finding["kind"] for finding in found["report"]["findings"]}


@pytest.mark.usefixtures("cluster")
def test_what_is_no_evidence_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    done = aiocontroller("check", "--zookeeper", "127.0.0.1:1", "--since", str(file), code=1)
    assert "other.json: found" in done.stderr


def test_an_empty_zookeeper_has_no_controller(zk_connect: str) -> None:
    done = aiocontroller("check", "--zookeeper", zk_connect, "--json", code=4)
    assert [finding["kind"] for finding in json.loads(done.stdout)["findings"]] == ["no-controller"]
