"""Makes ``docs/page.png``: the controller's page after one of a cluster's four brokers has died."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

TARGET = Path(__file__).resolve().parents[1] / "docs" / "page.png"
WIDTH, HEIGHT = 1280, 1130


def aiocontroller(data: Path, *arguments: str) -> None:
    """Run one command on the cluster."""
    subprocess.run([sys.executable, "-m", "aiocontroller", *arguments, "--data", str(data)], check=True)


def main() -> None:
    """Start the cluster, break it, and take the picture."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("no Chromium on PATH")
    data = Path(tempfile.mkdtemp(prefix="picture-"))
    up = [sys.executable, "-m", "aiocontroller", "up", "--json", "--brokers", "4", "--topics", "1", "--data", str(data)]
    cluster = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
    try:
        assert cluster.stdout is not None
        ready = next(event for line in cluster.stdout if (event := json.loads(line))["event"] == "ready")
        aiocontroller(data, "topics", "create", "orders", "--partitions", "12", "--replication-factor", "3")
        aiocontroller(data, "topics", "create", "audit", "--partitions", "4", "--replication-factor", "1")
        aiocontroller(data, "cluster", "kill-broker", "3")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            page.goto(ready["http"])
            page.wait_for_selector("#incidents li:has-text('broker 3 died')", timeout=60_000)
            page.wait_for_timeout(1500)
            page.screenshot(path=TARGET)
            browser.close()
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.wait(30)
        shutil.rmtree(data, ignore_errors=True)
    print(f"{TARGET}: {TARGET.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
