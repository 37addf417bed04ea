"""The hostile storm, short: how fast probes are answered says little on a busy machine, all else is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aiocontroller.lab.hostile.attacks import ATTACKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_every_attack_is_outlived(tmp_path: Path) -> None:
    verdict_file = tmp_path / "verdict.json"
    storm = [sys.executable, "-m", "aiocontroller", "storm", "hostile", "--seconds", "25", "--within", "4.5"]
    done = subprocess.run(
        [*storm, "--json", str(verdict_file)], capture_output=True, text=True, timeout=220, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    verdict = json.loads(verdict_file.read_bytes())
    assert verdict["violations"] == []
    assert {attack for each in verdict["rounds"] for attack in each["attacks"]} <= set(ATTACKS)
    assert all(each["role_kept"] and each["health"]["seconds"] for each in verdict["rounds"])
