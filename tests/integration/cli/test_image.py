"""The image: the Containerfile's steps, carried out from wheels without a network, and its program run as its user on a
root that can only be read."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from tests.integration.cli import containerfile
from tests.integration.cli.containerfile import Step, command, last, steps

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "distribution"
STEPS = steps((FOLDER / "Containerfile").read_text(encoding="utf-8"))


def test_it_runs_as_a_user_without_rights_and_names_what_exists() -> None:
    user, _, group = last(STEPS, "USER").partition(":")
    assert int(user) >= 1000
    assert int(group) >= 1000
    copied = [step.words.split() for step in STEPS if step.name == "COPY"]
    assert [words for words in copied if words[0] not in ("wheels", "--from=build")] == []
    assert {step.name for step in STEPS} == set("ARG FROM COPY RUN USER VOLUME HEALTHCHECK ENTRYPOINT CMD".split()), (
        "containerfile.py has to learn the new one"
    )


def test_steps_are_read_as_an_engine_reads_them() -> None:
    text = "# a\nARG X=b:1\nFROM ${X} AS one\nRUN a \\\n    && b\n# c\nUSER 1\nUSER 2\n"
    assert steps(text)[1:3] == [Step("FROM", "b:1 AS one"), Step("RUN", "a      && b")]
    assert last(steps(text), "USER") == "2"


def wheel_of(name: str, folder: Path) -> None:
    """Pack an installed distribution as a wheel again: tests have no network, and the image is built without one."""
    found = distribution(name)
    tags = [line[5:].split("-") for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*tags, strict=True))
    path = folder / f"{re.sub('[-.]+', '_', found.name)}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        record = ""
        for file in found.files or ():
            if ".." in file.parts or file.suffix == ".pyc" or file.name in ("RECORD", "INSTALLER", "REQUESTED"):
                continue
            content = Path(str(file.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{file.as_posix()},sha256={digest},{len(content)}\n"
            wheel.writestr(file.as_posix(), content)
        info = next(file.parent for file in found.files or () if file.name == "WHEEL")
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


def required(name: str, known: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distribution and all that it requires without extras."""
    if name not in known:
        known[name] = distribution(name)
        for requirement in known[name].requires or []:
            if "extra ==" not in requirement:
                each = re.match(r"[A-Za-z0-9._-]+", requirement)
                assert each is not None
                if "python_" not in requirement or each[0] in ("typing-extensions", "typing_extensions"):
                    required(each[0].lower(), known)
    return known


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``wheels``, as an engine gets it."""
    folder = tmp_path_factory.mktemp("context")
    (folder / "wheels").mkdir()
    for name in required("aiocontroller", {}).keys() - {"aiocontroller"}:
        wheel_of(name, folder / "wheels")
    make = [sys.executable, str(ROOT / "scripts" / "_make_wheels.py"), str(folder / "wheels")]
    subprocess.run(make, check=True, capture_output=True)
    return folder


Carry = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def carried(context: Path, tmp_path: Path) -> Iterator[Carry]:
    why = containerfile.missing()
    if why is not None:
        pytest.skip(f"the steps cannot be carried out: {why}")
    running: list[subprocess.Popen[str]] = []

    def begin(*then: str) -> subprocess.Popen[str]:
        for name in ("box", "data"):
            (tmp_path / name).mkdir(exist_ok=True)
        text = containerfile.script(STEPS, context, tmp_path / "box", tmp_path / "data", list(then))
        (tmp_path / "steps").write_text(text)
        with (tmp_path / "log").open("w") as log:
            running.append(
                subprocess.Popen(
                    ["unshare", "--mount", "--propagation", "private", "sh", str(tmp_path / "steps")],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            )
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


ATTACK = """
import os, sys
from pathlib import Path
from importlib.metadata import distributions
def writable(folder):
    try:
        (Path(folder) / "x").touch()
    except OSError:
        return False
    return True
print(os.getuid(), os.getgid(), os.getgroups())
print(*(f for f in ("/", "/tmp", "/etc", "/opt/aiocontroller", "/var/tmp", "/var/lib/aiocontroller") if writable(f)))
print(Path("/wheels").exists())
print(*sorted(found.name for found in distributions(path=[p for p in sys.path if "/opt/aiocontroller" in p])))
"""


@pytest.mark.timeout(600)
def test_in_it_is_what_a_plain_install_needs_and_one_folder_can_be_written(carried: Carry, tmp_path: Path) -> None:
    process = carried("/opt/aiocontroller/bin/python", "-I", "-c", ATTACK)
    printed, _ = process.communicate(timeout=500)
    assert process.returncode == 0, (tmp_path / "log").read_text()
    *_, who, where, has_wheels, names = printed.splitlines()
    assert (who, where, has_wheels) == ("10001 10001 []", "/var/lib/aiocontroller", "False")
    assert "aiocontroller" in names.split()
    assert {"pip", "setuptools", "aiocontroller-lab"} & set(names.split()) == set()


@pytest.mark.timeout(600)
def test_its_program_becomes_the_controller_and_answers_the_probes(
    carried: Carry, tmp_path: Path, zk_connect: str
) -> None:
    """The command line of the image, with ZooKeeper by option in place of a file, and a port that is free here."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = command(STEPS, "CMD")
    assert words[1:3] == ["--config", "/etc/aiocontroller/server.properties"]
    assert words[words.index("--http-port") + 1] == "8080"
    words = [port if word == "8080" else word for word in words if word not in words[1:3]]
    process = carried(*command(STEPS, "ENTRYPOINT"), *words, "--zookeeper", zk_connect, "--listen", "127.0.0.1:0")
    deadline = time.monotonic() + 500
    while probed(int(port), "/readyz") != (200, "active"):
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    health = [word.replace("8080", port) for word in command(STEPS, "HEALTHCHECK")]
    assert subprocess.run([sys.executable, *health[1:]], check=False).returncode == 0
    assert (tmp_path / "data" / "journal").is_dir()
    process.send_signal(signal.SIGHUP)
    while "Reloaded the certificates" not in (tmp_path / "log").read_text():
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert any(json.loads(line)["message"].startswith("Resigned") for line in lines)


def probed(port: int, path: str) -> tuple[int, str]:
    """Status and first line; (0, "") while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode().partition("\n")[0]
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""
