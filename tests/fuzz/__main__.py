"""``scripts/fuzz``: requests to a controller in memory, made from Kafka's schemas and guided by coverage.

    scripts/fuzz --seconds 60 [--seed 1] [--save]     search; what reaches new lines is bred further
    scripts/fuzz --play FILE                          one input again

With ``--save``, inputs that reached new lines go to ``tests/fuzz/corpus``, which every test run plays.  An input after
which something is wrong is printed and kept; exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console

from aiocontroller.lab.hostile.inputs import Input, Maker, Message
from tests.fuzz.playing import Lines, chance_of, play

CORPUS = Path(__file__).parent / "corpus"
SAY_EVERY_S = 5.0


def read_input(path: Path) -> Input:
    return msgspec.json.decode(path.read_bytes(), type=list[Message])


def corpus() -> dict[str, Input]:
    """By name, in the order of names."""
    return {path.stem: read_input(path) for path in sorted(CORPUS.glob("*.json"))}


def save(found: Input, folder: Path) -> Path:
    """One line for each message; the name is the content's digest."""
    data = b"[" + b",\n ".join(map(msgspec.json.encode, found)) + b"]\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(data).hexdigest()[:12]}.json"
    path.write_bytes(data)
    return path


class Fuzzer:
    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self._options = options
        self._console = console
        self._chance = chance_of(options.seed)
        self._maker = Maker(self._chance)
        self._parents: list[Input] = []
        self._reached: Lines = set()
        self.failures = 0

    def run(self) -> None:
        began_s = shown_s = time.monotonic()
        for known in corpus().values():
            self._try(known, known=True)
        played = len(self._parents)
        while (now_s := time.monotonic()) < began_s + self._options.seconds:
            self._try(self._next(), known=False)
            played += 1
            if now_s > shown_s + SAY_EVERY_S:
                shown_s = now_s
                self._console.print(
                    f"{now_s - began_s:.0f} s: {played:,} inputs, {len(self._reached):,} lines reached, "
                    f"{len(self._parents):,} inputs bred from, {self.failures} failures"
                )
        self._console.print(
            f"{played:,} inputs in {time.monotonic() - began_s:.0f} s, {len(self._reached):,} lines reached, "
            f"{self.failures} failures"
        )

    def _next(self) -> Input:
        if not self._parents or self._chance.random() < 0.3:
            return self._maker.fresh()
        parents = self._parents
        return self._maker.mutated(self._chance.choice(parents), self._chance.choice(parents))

    def _try(self, messages: Input, *, known: bool) -> None:
        wrong, lines = play(messages, trace=True)
        if wrong:
            self.failures += 1
            path = save(messages, Path(self._options.failures))
            self._console.print(f"{path}: {wrong[0]}", style="red", markup=False)
        fresh = lines - self._reached
        if known or (fresh and not wrong):
            self._parents.append(messages)
            if not known and self._options.save:
                save(messages, CORPUS)
        self._reached |= fresh


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="keep what reached new lines in tests/fuzz/corpus")
    parser.add_argument("--failures", metavar="DIR", default="fuzz-failures", help="where inputs that failed are kept")
    parser.add_argument("--play", metavar="FILE", type=Path, help="play one input and say what is wrong after it")
    options = parser.parse_args()
    logging.getLogger("aiocontroller").addHandler(logging.NullHandler())
    logging.getLogger("aiocontroller").propagate = False
    console = Console(highlight=False, soft_wrap=True)
    if options.play is not None:
        wrong, _ = play(read_input(options.play))
        console.print("\n".join(wrong) or "nothing is wrong", markup=False)
        return 1 if wrong else 0
    fuzzer = Fuzzer(options, console)
    fuzzer.run()
    return 1 if fuzzer.failures else 0


if __name__ == "__main__":
    sys.exit(main())
