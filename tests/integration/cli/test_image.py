"""The image: built from wheels without a network, and its program run as its user on a root that can only be read.

Podman does it where it is installed; beside that the Containerfile's steps are carried out without an engine.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cli import containerfile
from tests.integration.cli.containerfile import Step, command, last, steps
from tests.integration.cli.engine import BASE, IMAGE, Engine, here

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "distribution"
STEPS = steps((FOLDER / "Containerfile").read_text(encoding="utf-8"))
DATA = "/var/lib/aiocontroller"
CONFIG = "/etc/aiocontroller"
NOBODY = "zookeeper.connect=127.0.0.1:1\n"
WITHIN_S = 500


def test_it_runs_as_a_user_without_rights_and_names_what_exists() -> None:
    user, _, group = last(STEPS, "USER").partition(":")
    assert int(user) >= 1000
    assert int(group) >= 1000
    copied = [step.words.split() for step in STEPS if step.name == "COPY"]
    assert [words for words in copied if words[0] not in ("wheels", "--from=build")] == []
    assert {step.name for step in STEPS} == set(
        "ARG FROM COPY RUN ENV USER VOLUME HEALTHCHECK ENTRYPOINT CMD".split()
    ), "containerfile.py has to learn the new one"


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


@pytest.fixture(scope="module")
def built(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """Where the steps were carried out, and a process that sees the mounts there."""
    why = containerfile.missing()
    if why is not None:
        pytest.skip(f"the steps cannot be carried out: {why}")
    folder = tmp_path_factory.mktemp("steps")
    (folder / "box").mkdir()
    (folder / "script").write_text(containerfile.build(STEPS, context, folder / "box"))
    words = ["unshare", "--mount", "--propagation", "private", "sh", str(folder / "script")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        assert any(line == "built\n" for line in process.stdout), (folder / "log").read_text()
        yield folder / "box", process.pid


@pytest.fixture(scope="module")
def engine(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Podman with the image."""
    folder = tmp_path_factory.mktemp("podman")
    found = Engine(folder)
    try:
        why = found.missing()
        if why is not None:
            pytest.skip(f"no container can run: {why}")
        paths = {"distribution/Containerfile": str(FOLDER / "Containerfile"), "distribution": str(context)}
        words = [paths.get(word, word) for word in documented("docker build")[2:]]
        options = ["--format", "docker", "--layers=false", "--build-arg", f"PYTHON={BASE}", *here()]
        built = found.does("build", *options, *words)
        assert built.returncode == 0, built.stdout + built.stderr
        yield found
    finally:
        found.leave()


def documented(beginning: str) -> list[str]:
    """The words of the command in docs/installing.md that begins so."""
    text = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8").replace("\\\n", " ")
    [line] = [line for line in text.splitlines() if line.startswith(f"    {beginning} ")]
    return shlex.split(line)


class Running(NamedTuple):
    process: subprocess.Popen[str]
    log: Path
    is_parent: bool
    """The program is its child."""

    def send(self, number: signal.Signals) -> None:
        pid = self.process.pid
        if self.is_parent:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        os.kill(pid, number)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def says(self, words: str) -> bool:
        return words in self.log.read_text()


Carry = Callable[..., Running]


@pytest.fixture(params=["steps", "podman"])
def carried(request: pytest.FixtureRequest, context: Path, tmp_path: Path) -> Iterator[Carry]:
    """Starts the program that its arguments name in the image, with ``tmp_path/data`` as its volume."""
    form = request.getfixturevalue({"steps": "built", "podman": "engine"}[request.param])
    data, script = tmp_path / "data", tmp_path / "script"
    data.mkdir()
    os.chown(data, 10001, 10001)
    running: list[subprocess.Popen[str]] = []

    def begin(*then: str, environment: Mapping[str, str] = {}) -> Running:
        if isinstance(form, Engine):
            options = [each for key, value in environment.items() for each in ("--env", f"{key}={value}")]
            options += ["--read-only-tmpfs=false", "--entrypoint", json.dumps([then[0]]), *here()]
            options += without_a_name(tmp_path, str(data))
            words = [*form.command, "run", *options, IMAGE, *then[1:]]
        else:
            box, pid = form
            script.write_text(containerfile.run(STEPS, box, data, list(then), environment))
            words = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "unshare", "--mount", "--propagation", "private"]
            words += ["sh", str(script)]
        with (tmp_path / "log").open("w") as log:
            running.append(
                subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            )
        return Running(running[-1], tmp_path / "log", not isinstance(form, Engine))

    yield begin
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def without_a_name(config: Path, data: str) -> list[str]:
    """The documented options of ``docker run``, with these folders."""
    options = documented("docker run")[2:-1]
    assert options[:3] == ["--detach", "--name", "aiocontroller"]
    moved = {f"{CONFIG}:{CONFIG}:ro": f"{config}:{CONFIG}:ro", f"aiocontroller:{DATA}": f"{data}:{DATA}"}
    assert set(moved) < set(options)
    return [moved.get(each, each) for each in options[3:]]


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
print(os.getuid(), os.getgid(), set(os.getgroups()) - {os.getgid()})
print(*(f for f in ("/", "/tmp", "/etc", "/opt/aiocontroller", "/var/tmp", "/var/lib/aiocontroller") if writable(f)))
print(Path("/wheels").exists())
print(*sorted(found.name for found in distributions(path=[p for p in sys.path if "/opt/aiocontroller" in p])))
"""


@pytest.mark.timeout(600)
def test_in_it_is_what_a_plain_install_needs_and_one_folder_can_be_written(carried: Carry, tmp_path: Path) -> None:
    process = carried("/opt/aiocontroller/bin/python", "-I", "-c", ATTACK).process
    printed, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, (tmp_path / "log").read_text()
    *_, who, where, has_wheels, names = printed.splitlines()
    assert (who, where, has_wheels) == ("10001 10001 set()", DATA, "False")
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
    assert words[1:3] == ["--config", f"{CONFIG}/server.properties"]
    assert words[words.index("--http-port") + 1] == "8080"
    words = [port if word == "8080" else word for word in words if word not in words[1:3]]
    running = carried(*command(STEPS, "ENTRYPOINT"), *words, "--zookeeper", zk_connect, "--listen", "127.0.0.1:0")
    running.until(lambda: probed(int(port), "/readyz") == (200, "active"))
    health = [word.replace("8080", port) for word in command(STEPS, "HEALTHCHECK")]
    assert subprocess.run([sys.executable, *health[1:]], check=False).returncode == 0
    assert (tmp_path / "data" / "journal").is_dir()
    running.send(signal.SIGHUP)
    running.until(lambda: running.says("Reloaded the certificates"))
    running.send(signal.SIGTERM)
    assert running.process.wait(30) == 0
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert any(json.loads(line)["message"].startswith("Resigned") for line in lines)
    assert running.process.stdout is not None
    *_, printed = running.process.stdout.read().splitlines()
    assert json.loads(printed)["event"] == "ready"


SLOW_START = f"""
import signal, time
open("{DATA}/begun", "w").close()
deadline = time.monotonic() + 5
while signal.SIGTERM not in signal.sigpending() and time.monotonic() < deadline:
    time.sleep(0.01)
"""


@pytest.mark.timeout(600)
def test_sigterm_before_the_program_listens_ends_it(carried: Carry, tmp_path: Path) -> None:
    """The first process of a container does not get a signal that it neither handles nor blocks: it was lost, and the
    program went on until it was killed."""
    (tmp_path / "data" / "sitecustomize.py").write_text(SLOW_START)
    words = ["run", "--zookeeper", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--http-port", "0"]
    running = carried(*command(STEPS, "ENTRYPOINT"), *words, environment={"PYTHONPATH": DATA})
    running.until((tmp_path / "data" / "begun").exists)
    running.send(signal.SIGTERM)
    assert running.process.wait(30) == 128 + signal.SIGTERM


@pytest.mark.timeout(600)
def test_sigterm_ends_any_command(carried: Carry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WITHIN_S)
        zookeeper = "{}:{}".format(*silent.getsockname())
        running = carried(*command(STEPS, "ENTRYPOINT"), "topics", "list", "--zookeeper", zookeeper)
        with silent.accept()[0]:
            running.send(signal.SIGTERM)
            assert running.process.wait(30) == 128 + signal.SIGTERM


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """A folder with a properties file that the image's user can read."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "server.properties").write_text(NOBODY)
    return folder


def test_the_documented_commands(engine: Engine, properties: Path) -> None:
    """As they stand, but for the network: the port of the health check may be another program's here."""
    options = ["--name", "aiocontroller", *without_a_name(properties, "aiocontroller")]
    options[options.index("host")] = "none"

    def does(*words: str) -> str:
        done = engine.does(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until_healthy() -> None:
        deadline = time.monotonic() + WITHIN_S
        while engine.does("healthcheck", "run", "aiocontroller").returncode != 0:
            assert time.monotonic() < deadline, does("logs", "aiocontroller")
            time.sleep(0.1)

    def code() -> str:
        return does("wait", "aiocontroller").strip()

    does("run", "--detach", *options, *here(), IMAGE)
    until_healthy()
    assert "aiocontroller, version" in does(*documented("docker exec")[1:3], "aiocontroller", "--version")
    does("stop", "aiocontroller")
    assert code() == "0"
    for how, ends in (("KILL", "137"), ("TERM", "0")):
        does("start", "aiocontroller")
        until_healthy()
        does("kill", "--signal", how, "aiocontroller")
        assert code() == ends
    deadline = time.monotonic() + 20
    while True:  # what podman writes down may lag behind the end
        done = engine.does("logs", "aiocontroller")
        messages = [json.loads(line)["message"] for line in (done.stdout + done.stderr).splitlines()]
        if messages.count("SIGTERM: ending within 5 s") == 2:
            break
        assert time.monotonic() < deadline, messages
        time.sleep(0.2)
    does("rm", "aiocontroller")


def test_what_is_missing_is_named(engine: Engine, properties: Path, tmp_path: Path) -> None:
    def refused(config: Path, data: str, how: str = "") -> tuple[int, str]:
        options = [each + how * each.endswith(f":{DATA}") for each in without_a_name(config, data)]
        done = engine.does("run", "--rm", *options, *here(), IMAGE)
        return done.returncode, done.stderr.splitlines()[-1]

    (tmp_path / "data").mkdir()
    data = str(tmp_path / "data")
    (tmp_path / "nothing").mkdir()
    file = f"{CONFIG}/server.properties"
    missing = f"Error: Invalid value for '--config': File '{file}' does not exist."
    assert refused(tmp_path / "nothing", data) == (2, missing)
    unusable = f"Error: the folder {DATA} cannot be used: {{}}; name another by --data"
    assert refused(properties, data) == (1, unusable.format("Permission denied"))
    os.chown(data, 10001, 10001)
    assert refused(properties, data, ":ro") == (1, unusable.format("Read-only file system"))
    (properties / "server.properties").chmod(0o600)
    unreadable = f"Error: Invalid value for '--config': File '{file}' is not readable."
    assert refused(properties, data) == (2, unreadable)


SYSTEMD = Path("/usr/lib/systemd/systemd")


@pytest.mark.skipif(not SYSTEMD.exists(), reason="no systemd")
def test_systemd_runs_the_unit(engine: Engine, properties: Path, zk_connect: str) -> None:
    """As the first process of a container, in place of the image's program."""
    file = f"zookeeper.connect={zk_connect}\nlisteners=PLAINTEXT://127.0.0.1:0\naiocontroller.http.port=0\n"
    (properties / "server.properties").write_text(file)
    first = ["--systemd=always", "--user", "0:0", "--entrypoint", json.dumps([str(SYSTEMD), "--unit=basic.target"])]
    options = ["--network", "host", "--volume", f"{properties}:{CONFIG}:ro", *first, *here()]
    began = engine.does("run", "--detach", "--name", "systemd", *options, IMAGE)
    assert began.returncode == 0, began.stderr

    def does(line: str) -> str:
        done = engine.does("exec", "systemd", "sh", "-c", line)
        said = engine.does("exec", "systemd", "journalctl", "--no-pager").stdout
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}{said}"
        return done.stdout

    def until(*lines: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not set(lines) <= set(found := does("systemctl show aiocontroller").splitlines()):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    unit = "/etc/systemd/system/aiocontroller.service"
    does("echo kafka:x:7001:7001::/:/bin/false >>/etc/passwd; echo kafka:x:7001: >>/etc/group")
    does(f"mkdir -p {Path(unit).parent}; aiocontroller systemd-unit --user kafka >{unit}")  # systemd may come later
    does("until systemctl daemon-reload; do sleep 0.2; done; systemctl start aiocontroller")
    until("SubState=running", "StatusText=active, epoch 1")
    does("systemctl reload aiocontroller")
    does("systemctl kill --signal KILL aiocontroller")
    until("SubState=running", "NRestarts=1")
    does("systemctl stop aiocontroller")
    until("ActiveState=inactive", "Result=success", "ExecMainStatus=0")
    does(f"sed -i 's/ run / run --no-such-option /' {unit}; systemctl daemon-reload")
    does("! systemctl start aiocontroller")
    until("ActiveState=failed", "NRestarts=0", "ExecMainStatus=2")
    assert engine.does("rm", "--force", "--time", "0", "systemd").returncode == 0


def probed(port: int, path: str) -> tuple[int, str]:
    """Status and first line; (0, "") while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode().partition("\n")[0]
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""
