"""The zoo's machine-made bugs are what ``scripts/mutate`` makes, and no others."""

from __future__ import annotations

import ast

import pytest

from aiocontroller.lab.simulation.zoo import injected
from aiocontroller.lab.simulation.zoo_mutants import MUTANT_BUGS, MUTATIONS, Mutation
from tests.mutation.mutants import Mutant, mutated


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.key)
def test_a_bug_is_the_mutant_of_its_key(mutation: Mutation) -> None:
    module, where = mutation.key.split(":")[:2]
    scope: ast.AST = mutated(Mutant(mutation.key, module, (0, 0)))
    for name in where.split("."):
        [scope] = [node for node in getattr(scope, "body", ()) if getattr(node, "name", "") == name]
    assert normal(ast.unparse(scope)) == normal(mutation.source())


def normal(source: str) -> str:
    """As Python writes it, without indentation and what mutants leave of what they remove."""
    text = " ".join(ast.unparse(ast.parse(source)).split())
    return text.replace(" and True", "").replace("True and ", "").replace("(", "").replace(")", "")


def test_each_bug_replaces_its_function() -> None:
    for bug, mutation in zip(MUTANT_BUGS, MUTATIONS, strict=True):
        before = vars(mutation.owner)[mutation.name]
        with injected(bug):
            assert vars(mutation.owner)[mutation.name].__name__ == mutation.name
            assert vars(mutation.owner)[mutation.name] is not before
        assert vars(mutation.owner)[mutation.name] is before
        assert (bug.origin, bug.source) == ("mutant", f"scripts/mutate {mutation.key}")
