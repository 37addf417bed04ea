"""``aiocontroller rehearse`` as a process: on a cluster, on a file, repeated, and its page in a real browser."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiocontroller.check.snapshot import encode_snapshot
from tests.integration.analytics.test_page import BROWSER, SPILLED
from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_check import changes
from tests.integration.cli.test_status import cluster
from tests.unit.lab.rehearsal.trees import healthy

__all__ = ["cluster"]
PAGE = "page.html"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Of three brokers with ids of their own."""
    file = tmp_path / "the tree.json"
    file.write_bytes(encode_snapshot(healthy([101, 102, 103], 4, 2), 1_700_000_000_000_000, b"k"))
    return file


def rehearse(*arguments: str, cwd: Path, code: int = 0) -> str:
    return aiocontroller("rehearse", *arguments, "--report", PAGE, cwd=cwd, code=code, timeout_s=200).stdout


@pytest.mark.usefixtures("cluster")
def test_it_rehearses_a_cluster_and_changes_nothing_in_it(zk_connect: str, kazoo: KazooClient, tmp_path: Path) -> None:
    before = changes(kazoo)
    output = rehearse("--zookeeper", zk_connect, "--seeds", "1", cwd=tmp_path)
    assert changes(kazoo) == before
    assert output.startswith("3 brokers, 2 registered; 4 partitions.\n")
    assert "broker 2 dies" in output
    assert "Verdict: no violation. Nothing was written." in output
    assert "--tree TREE --seed 1, with a file of aiocontroller check --save-tree" in output
    assert "no violations" in (tmp_path / PAGE).read_text(encoding="utf-8")


def test_the_same_tree_and_seed_give_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    made = []
    for hash_seed, jobs in (("0", "1"), ("1", "2")):
        folder = tmp_path / hash_seed
        folder.mkdir()
        command = [sys.executable, "-m", "aiocontroller", "rehearse", "--tree", str(tree), "--seeds", "2"]
        done = subprocess.run(
            [*command, "--jobs", jobs, "--report", PAGE],
            check=True,
            capture_output=True,
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            timeout=200,
        )
        made.append((done.stdout, (folder / PAGE).read_bytes()))
    assert made[0] == made[1]


def test_the_worst_seed_can_be_played_again_by_the_command_that_it_prints(tree: Path, tmp_path: Path) -> None:
    output = rehearse("--tree", str(tree), "--seeds", "2", cwd=tmp_path)
    again = shlex.split(next(line for line in output.splitlines() if line.startswith("Again")).partition(": ")[2])
    assert again[:2] == ["aiocontroller", "rehearse"]
    both = json.loads(rehearse("--tree", str(tree), "--seeds", "2", "--json", cwd=tmp_path))
    alone = json.loads(rehearse(*again[2:], "--json", cwd=tmp_path))
    assert alone["seeds"][0] in both["seeds"]
    assert both["worst_seed"] == alone["seeds"][0]["seed"]


def test_a_plan_is_read_by_the_ids_of_the_cluster(tree: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    name = next(iter(json.loads(tree.read_bytes())["topics"]))

    def write(replicas: list[int], topic: str = name) -> str:
        move = {"topic": topic, "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        return str(plan)

    def refused(*given: Any) -> str:
        return aiocontroller("rehearse", "--tree", str(tree), "--plan", write(*given), code=1, cwd=tmp_path).stderr

    assert "found broker 1, expected one that is registered: 101, 102, 103" in refused([1])
    assert "found nobody-0, expected a partition that can be rehearsed" in refused([101], "nobody")
    assert "found replicas [], expected some, each once" in refused([])
    output = json.loads(rehearse("--tree", str(tree), "--plan", write([103]), "--seeds", "1", "--json", cwd=tmp_path))
    assert next(each["violations"] for each in output["events"] if each["event"] == "replicas move") == 0


@pytest.mark.parametrize(
    "arguments, code, error",
    [
        (("--seeds", "0"), 2, "not in the range"),
        (
            ("--report", "no/such/folder.html", "--seeds", "1"),
            1,
            "--report no/such/folder.html: there is no folder no/such",
        ),
        (("--data", "x"), 2, "leave --data and --zookeeper out"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tree: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, error: str
) -> None:
    done = aiocontroller("rehearse", "--tree", str(tree), *arguments, code=code, cwd=tmp_path, timeout_s=200)
    assert error in done.stderr


@pytest.mark.timeout(600)
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH")
def test_the_page_fits_every_width_and_loads_nothing(tree: Path, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    rehearse("--tree", str(tree), "--seeds", "2", cwd=tmp_path)
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for width in (360, 1300):
            for theme in ("light", "dark"):
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
                page.on("console", lambda message: wrong.append(message.text))
                page.on("request", lambda asked: asked.url.startswith("file:") or wrong.append(asked.url))
                page.goto((tmp_path / PAGE).as_uri())
                assert page.inner_text("h1") == "Rehearsal: no violations"
                assert page.locator("circle").count() == 2 * page.locator("tbody").first.locator("tr").count()
                assert page.evaluate(SPILLED) == []
                page.close()
        browser.close()
    assert wrong == []
