"""Mutation testing of one module: change one operator, constant or condition at a time; some test must notice.

    scripts/mutate core/reassignment [tests/unit/core/test_reassignment.py …] [--most 100] [--seed 1]

Without tests named, those of the module's own file and the random clusters run.  Prints every survivor with its line;
the exit code is 1 when fewer than --least of a hundred mutants were killed.  Not for continuous integration: a mutant
costs a run of its tests, two to ten seconds.

Each mutant is a copy of the package in a temporary folder that is found before the real one.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 120

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutant(NamedTuple):
    line: int
    what: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """One for each place; a fresh tree every time, since each changes its own."""
    count = sum(1 for _ in ast.walk(ast.parse(source)))
    for number in range(count):
        tree = ast.parse(source)
        node = next(node for at, node in enumerate(ast.walk(tree)) if at == number)
        what = _change(node)
        if what is not None:
            yield Mutant(node.lineno, what, ast.unparse(tree))  # type: ignore[attr-defined]


def _change(node: ast.AST) -> str | None:
    """Change the node; what was done, or None where nothing can be."""
    before = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else ""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            node.ops[0] = COMPARISONS[type(op)]()
        case ast.BoolOp(op=ast.And()):
            node.op = ast.Or()
        case ast.BoolOp(op=ast.Or()):
            node.op = ast.And()
        case ast.BinOp(op=ast.Add()):
            node.op = ast.Sub()
        case ast.BinOp(op=ast.Sub()):
            node.op = ast.Add()
        case ast.BinOp(op=ast.BitAnd()):
            node.op = ast.BitOr()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return f"if not ({before.splitlines()[0].removeprefix('if ').rstrip(':')})"
        case _:
            return None
    return f"{before}  ->  {ast.unparse(node)}"


def killed(mutant: Mutant, module: str, tests: list[str], folder: Path) -> bool:
    target = folder / "aiocontroller" / f"{module}.py"
    target.write_text(mutant.source)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={folder} ."]
    try:
        done = subprocess.run([*command, *tests], cwd=ROOT, check=False, capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def own_tests(module: str) -> list[str]:
    room, _, name = module.partition("/")
    own = f"tests/unit/{room}/test_{name}.py"
    return [own if (ROOT / own).exists() else f"tests/unit/{room}", "tests/unit/controller/test_random_clusters.py"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("module", help="such as core/reassignment")
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--most", type=int, default=100, help="that many mutants, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=int, default=85, help="percent to be killed")
    given = parser.parse_args()
    module = given.module.removeprefix("aiocontroller/").removesuffix(".py")
    source = (ROOT / "aiocontroller" / f"{module}.py").read_text()
    tests = given.tests or own_tests(module)
    every = list(mutants(source))
    drawn = sorted(random.Random(given.seed).sample(every, min(given.most, len(every))))
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "aiocontroller", folder / "aiocontroller", ignore=shutil.ignore_patterns("__pycache__"))
        if killed(Mutant(0, "", source), module, tests, folder):
            print("the tests fail without any mutant")
            return 2
        for mutant in drawn:
            if not killed(mutant, module, tests, folder):
                survivors.append(mutant)
                print(f"survived  {module}.py:{mutant.line}  {mutant.what}", flush=True)
    share = 100 * (len(drawn) - len(survivors)) / max(len(drawn), 1)
    print(
        f"{module}: {len(drawn) - len(survivors)} of {len(drawn)} mutants killed ({share:.0f} %), {len(every)} in all"
    )
    return 0 if share >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
