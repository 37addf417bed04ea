"""The corpus, and a few fresh inputs on each run: no request ends the term, breaks the context or silences the door."""

from __future__ import annotations

import pytest

from aiocontroller.lab.hostile.inputs import Input, Maker
from tests.fuzz.__main__ import corpus
from tests.fuzz.playing import chance_of, play

FRESH, TOGETHER = 150, 10
CORPUS = corpus()


def test_there_is_a_corpus() -> None:
    assert len(CORPUS) > 50


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(name: str) -> None:
    wrong, _ = play(CORPUS[name])
    assert wrong == []


@pytest.mark.parametrize("seed", range(FRESH // TOGETHER))
def test_fresh_inputs(seed: int) -> None:
    maker = Maker(chance_of(20261122 + seed))
    inputs: list[Input] = [maker.fresh() for _ in range(TOGETHER)]
    failures = [(each, wrong) for each in inputs if (wrong := play(each)[0])]
    assert failures == []


def test_an_input_is_played_in_the_same_way_twice() -> None:
    messages = Maker(chance_of(7)).fresh()
    play(messages)  # schemas are read at first use
    assert play(messages, trace=True) == play(messages, trace=True)
