"""``scripts/mutate``: which changes it makes, that keys find them, and that its lists are current."""

from __future__ import annotations

import ast
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import mutants, recording, running
from tests.mutation.__main__ import draw
from tests.mutation.mutants import ROOT, Mutant, modules, mutants_of, mutated, reasons, semantic
from tests.mutation.plugin import Functions, NeedsInterpreterError, give
from tests.mutation.running import Result, Verdict, unasked
from tests.mutation.table import Judged, show

SOURCE = '''
"""Not changed: this 1."""

LIMIT = 3


class Thing:
    def take(self, wanted: list[int], most: int = 2) -> None:
        """Not changed either: True."""
        log.info("not this %d", 4)
        if not wanted:
            return
        self.first(wanted)
        self.second(wanted)
        self.count += 1
        found = [n for n in wanted if n > most and n != LIMIT]
        self.found = found
'''


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(mutants, "source_of", lambda module: SOURCE if module == "example.py" else "")
    monkeypatch.setattr(mutants, "semantic", dict)
    return "example.py"


WANTED = {
    ": constant: 3": "LIMIT = 4",
    "Thing.take: constant: 2": "most: int=3",
    "Thing.take: constant: 1": "self.count += 2",
    "Thing.take: condition: if not wanted": "if not not wanted",
    "Thing.take: guard removed: if not wanted:": "log.info('not this %d', 4)\n        pass",
    "Thing.take: statement removed: self.first(wanted)": "return\n        pass\n        self.second",
    "Thing.take: swapped: self.first(wanted)": "self.second(wanted)\n        self.first(wanted)",
    "Thing.take: returned early: before self.second(wanted)": "self.first(wanted)\n        return\n",
    "Thing.take: compare: n > most": "n >= most",
    "Thing.take: and/or: n > most and n != LIMIT": "n > most or n != LIMIT",
    "Thing.take: operand removed: n != LIMIT in n > most and n != LIMIT": "n > most and True",
    "Thing.take: filter removed: n > most and n != LIMIT": "[n for n in wanted]",
    "Thing.take: statement removed: self.found = found": "LIMIT]\n        pass",
}


@pytest.mark.parametrize("key", WANTED)
def test_each_kind_of_change_is_made(example: str, key: str) -> None:
    by_key = {mutant.key: mutant for mutant in mutants_of(example)}
    after = ast.unparse(mutated(by_key[example + ":" + key]))
    assert WANTED[key] in after
    assert ast.unparse(ast.parse(SOURCE)) != after


def test_what_only_people_read_is_left_alone(example: str) -> None:
    keys = [mutant.key for mutant in mutants_of(example)]
    assert [key for key in keys if "log.info" in key and "before" not in key] == []
    assert [key for key in keys if "constant: 4" in key or "True" in key or "list[int]" in key] == []


def test_keys_are_of_one_mutant_each_and_survive_what_moves_the_lines() -> None:
    every = [mutant.key for module in modules() for mutant in mutants_of(module)]
    assert len(every) == len(set(every)) > 5000


def test_mutants_compile() -> None:
    every = [mutant for module in modules() for mutant in mutants_of(module)]
    for mutant in random.Random(1).sample(every, 40):
        compile(mutated(mutant), mutant.module, "exec")


def test_a_key_that_is_none() -> None:
    with pytest.raises(mutants.UnknownMutantError):
        mutated(Mutant("core/election.py:elect: compare: 1 == 2", "core/election.py", (1, 1)))


def test_the_mutants_by_hand_fit_their_modules_and_say_why() -> None:
    assert len(semantic()) >= 5
    assert [name for name, change in semantic().items() if not change.why or change.before == change.after] == []


def test_each_reason_names_a_mutant() -> None:
    every = {mutant.key for module in modules() for mutant in mutants_of(module)}
    assert [key for key, reason in reasons().items() if key not in every or len(reason) < 10] == []


def test_functions_in_memory_are_given_the_mutated_code() -> None:
    from aiocontroller.core import columns

    (mutant,) = (m for m in mutants_of("core/columns.py") if m.key.endswith("take: condition: if n < 2"))
    before = columns.take.__code__
    try:
        give(Functions().changes(mutant))
        assert columns.take.__code__ != before
        assert columns.take.__code__.co_firstlineno == before.co_firstlineno
    finally:
        columns.take.__code__ = before


def test_a_function_may_lose_what_is_inside_of_it() -> None:
    from aiocontroller.controller import leadership_writes

    wanted = "journal_partitions: returned early: before if NO_ISR in isrs:"
    (mutant,) = (m for m in mutants_of("controller/leadership_writes.py") if m.key.endswith(wanted))
    before = leadership_writes.journal_partitions.__code__
    try:
        give(Functions().changes(mutant))
        assert len(leadership_writes.journal_partitions.__code__.co_code) < len(before.co_code)
    finally:
        leadership_writes.journal_partitions.__code__ = before


def test_what_runs_at_import_cannot_be_changed_in_memory() -> None:
    (mutant,) = (m for m in mutants_of("controller/producer_ids.py") if m.key.endswith(": constant: 1000"))
    with pytest.raises(NeedsInterpreterError):
        Functions().changes(mutant)


def test_every_suite_is_asked_and_the_last_resort_about_survivors_only() -> None:
    suites = ["unit", "simulation", "integration"]
    killed, survived = Verdict("a test", 1, 3), Verdict(None, 3, 3)
    assert unasked(suites, {}, first_kill=False) == suites
    assert unasked(suites, {"unit": killed}, first_kill=False) == ["simulation"]
    assert unasked(suites, {"unit": survived}, first_kill=False) == ["simulation", "integration"]
    assert unasked(suites, {"unit": killed}, first_kill=True) == []
    assert unasked(suites, {"unit": survived}, first_kill=True) == ["simulation", "integration"]


def test_the_table_tells_kills_from_survivals_and_from_suites_that_were_not_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = {
        "unit": Verdict("a test", 1, 3),
        "conformance": Verdict(None, 2, 5),
        "differential": Verdict(None, 0, 0),
    }
    mutant = Mutant("a.py:f: constant: 1", "a.py", (1, 1))
    one = Judged(mutant, Result(mutant.key, "a.py", 1, "", verdicts), None)
    suites = ["unit", "conformance", "differential", "simulation"]
    assert [one.cell(suite) for suite in suites] == ["kills", "2 of 5", "–", "·"]
    show([one], 1, suites, as_json=False)
    assert "simulation tests kill      0 of the 0 whose line they run; asked about 0" in capsys.readouterr().out


def test_a_sample_changes_little_where_the_program_does() -> None:
    every = [Mutant(f"a.py:f: constant: {n}", "a.py", (n, n)) for n in range(1000)]
    by_hand = Mutant("semantic: wrong", "a.py", (1, 1))
    drawn = draw([*every, by_hand], 100, 1)
    assert drawn[0] == by_hand
    assert draw(every, 10, 1) == drawn[1:11]
    assert draw(every, 100, 2) != drawn[1:]
    assert len(set(draw(every[:900], 100, 1)) - set(drawn)) < 25


def test_a_recording_holds_until_its_tests_or_the_modules_that_they_run_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"a.py": "1", "b.py": "2"}
    monkeypatch.setattr(recording, "ROOT", tmp_path)
    monkeypatch.setattr(recording, "modules", lambda: [*sources])
    monkeypatch.setattr(recording, "source_of", lambda module: sources[module])
    file = tmp_path / "test_a.py"
    file.write_text("first")
    folder = tmp_path / "kept"
    folder.mkdir()

    def record() -> None:
        part = recording.Part("test_a.py", recording.digest_of(file.read_text()), ["unit"], {})
        part.modules = {"a.py": recording.digest("a.py")}
        part.tests, part.suites, part.seconds, part.lines = ["one"], [["unit"]], [0.1], {"a.py": {7: [0]}}
        recording.write_part(folder, part)

    def stale(*suites: str) -> list[str]:
        return recording.kept(folder, ["test_a.py"], suites)[1]

    assert stale("unit") == ["test_a.py"]
    record()
    assert stale("unit") == []
    assert recording.kept(folder, ["test_a.py"], ["unit"])[0].lines == {"a.py": {7: [0]}}
    sources["b.py"] = "3"
    assert stale("unit") == []
    assert stale("unit", "integration") == ["test_a.py"]
    sources["a.py"] = "3"
    assert stale("unit") == ["test_a.py"]
    record()
    file.write_text("second")
    assert stale("unit") == ["test_a.py"]


def test_the_bound_of_a_hanging_test_does_not_count_the_wait_for_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = tmp_path / "current"
    current.write_text("")
    began, asleep = recording.own_seconds(), time.monotonic()
    while recording.own_seconds() < began + 0.05:
        pass
    assert time.monotonic() - asleep >= 0.04  # the two clocks' steps differ
    monkeypatch.setattr(running, "own_seconds", lambda pid: 0.0)  # as if it had waited for a core all the time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"], start_new_session=True)
    assert running.wait_for(child.pid, current, lambda _: 0.01) == 0
    child.returncode = 0
    monkeypatch.undo()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    assert running.wait_for(child.pid, current, lambda _: 0.01) is None
    child.returncode = -9


def test_each_test_has_a_bound_of_its_own(tmp_path: Path) -> None:
    current = tmp_path / "current"
    current.write_text("")
    child = subprocess.Popen(
        ["/bin/sh", "-c", f"echo a > {current}; sleep 0.3; echo b > {current}; sleep 600"], start_new_session=True
    )
    began_s = time.monotonic()
    assert running.wait_for(child.pid, current, lambda test: 0.1 if test.strip() == "b" else 600) is None
    assert time.monotonic() > began_s + 0.3
    assert current.read_text() == "b\n"
    child.returncode = -9


def test_a_test_ends_with_the_process_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = tmp_path / "current"
    current.write_text("")

    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            raise SystemExit
        sleep(seconds)

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", interrupted)
        with pytest.raises(SystemExit):
            running.wait_for(child.pid, current, lambda _: 600)
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
    child.returncode = -9


@pytest.mark.timeout(240)
def test_a_run_that_is_ended_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mutation", "core/partitions", "--suites", "unit"]
    command += ["--tests", "tests/unit/core/test_partitions.py", "--folder", str(tmp_path)]
    run = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert run.stderr is not None
    while not re.match(r"\d+ of \d+ mutants, ", run.stderr.readline()):  # hundreds of mutants, so it is far from done
        assert run.poll() is None
    run.terminate()
    _, output = run.communicate(timeout=60)
    assert "ended by a signal" in output
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)


@pytest.mark.timeout(240)
def test_a_run_tells_which_tests_kill_which_mutants_and_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mutation", "core/columns", "--only", "take: co", "--suites", "unit"]
    command += ["--tests", "tests/unit/core/test_columns.py", "--folder", str(tmp_path), "--json"]

    def run(*more: str) -> tuple[dict[str, Any], str]:
        done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode in (0, 1), done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {one["mutant"]: one for one in rows}, done.stderr

    found, output = run("--sample", "1")
    assert "recording" in output
    assert len(found) == 1
    more, output = run("--sample", "3")
    assert found.items() <= more.items()
    assert "recording" not in output
    assert "2 of 2 mutants" in output
    killers = [killer for one in more.values() for killer in one["killed_by"].values()]
    assert killers
    assert {killer.partition("[")[0] for killer in killers} == {
        "tests/unit/core/test_columns.py::test_take_is_row_by_row"
    }
    assert (ROOT / "aiocontroller" / "core" / "columns.py").read_text() == mutants.source_of("core/columns.py")
