"""The dashboard over a cluster that runs: Prometheus scrapes it, and every panel has something to show."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiocontroller.cli.run import READY_FILE
from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from tests.integration.cli.test_up import Up, java, started, until

__all__ = ["java", "started"]
PROMETHEUS = shutil.which("prometheus")
DASHBOARD = Path(__file__).resolve().parents[3] / "docs" / "monitoring" / "dashboard.json"
pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus on PATH")


@contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[str]:
    """Scrapes these each second; yields its address."""
    folder.mkdir()
    scraped = [{"targets": targets, "labels": {"cluster": "box"}}]
    jobs = [{"job_name": "aiocontroller", "scrape_interval": "1s", "static_configs": scraped}]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    address = f"127.0.0.1:{free_port()}"
    assert PROMETHEUS is not None
    command = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def standby(zookeeper: str, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", zookeeper, "--id", "1000002"]
    process = subprocess.Popen([*command, "--data", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def asked() -> list[tuple[str, str]]:
    """Each panel's title, and what it asks for."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [(each["title"], target["expr"]) for each in panels for target in each.get("targets", ())]


def finds(address: str, expression: str) -> bool:
    query = urllib.parse.urlencode({"query": expression.replace("$cluster", "box")})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=10) as answer:
            return bool(json.load(answer)["data"]["result"])
    except OSError:  # it has just started
        return False


def test_every_panel_has_data_of_a_quiet_cluster(started: Callable[..., Up], tmp_path: Path) -> None:
    up = started()
    up.line()
    cluster = json.loads((up.data / "cluster.json").read_text())
    other = tmp_path / "standby"
    with standby(cluster["zookeeper"], other):
        until(lambda: (other / READY_FILE).exists())
        folders = [next(up.data.rglob(READY_FILE)).parent, other]
        pages = [json.loads((folder / READY_FILE).read_text())["http"] for folder in folders]
        with prometheus(tmp_path / "prometheus", [page.removeprefix("http://") for page in pages]) as address:

            def empty() -> list[tuple[str, str]]:
                return [each for each in asked() if not finds(address, each[1])]

            try:
                until(lambda: not empty(), 60)
            except AssertionError:
                pytest.fail(f"nothing to show: {empty()}")
