from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.cluster.experiments.analysis.labels import labels, words_of
from tests.cluster.experiments.analysis.made_up import BATCH, RATE, STRATEGY, repeats


def label(axes: list[str], values: dict[str, Any]) -> str:
    other = {**values, STRATEGY: "pipeline"}
    return labels(axes, [repeats(0, values, [1.0])[0], repeats(1, other, [1.0])[0]])[0]


def test_strategy_ranks_and_what_else_varies() -> None:
    values = {BATCH: 32, STRATEGY: "fsdp", "world_size": 2, RATE: 0.001}
    assert label([STRATEGY, BATCH, "world_size"], values) == "fsdp, 2 ranks, batch 32"
    assert label([STRATEGY, RATE], values) == "fsdp, lr 0.001"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("compile", True, "compile"),
        ("compile", False, "no compile"),
        ("precision", "bf16", "bf16"),
        ("optimizer.kind", "adamw", "adamw"),
        ("training.gradient_clip_norm", None, "gradient clip norm unset"),
        ("parallelism", {"strategy": "hsdp", "shard": 2}, "hsdp, shard 2"),
        ("data.path", "a/b", "path a/b"),
    ],
)
def test_values_in_words(path: str, value: Any, words: str) -> None:
    assert words_of([path], [value]) == words


def test_fields_of_the_same_name_have_their_section() -> None:
    assert words_of(["optimizer.eps", "model.eps"], [1, 2]) == "optimizer eps 1, model eps 2"


def test_a_single_process_has_no_axes_of_a_mesh() -> None:
    assert label([STRATEGY, "parallelism.shard"], {STRATEGY: "single", "parallelism.shard": None}) == "single"


def test_equal_labels_are_numbered() -> None:
    twice = [repeats(0, {STRATEGY: "ddp"}, [1.0])[0], repeats(1, {STRATEGY: "ddp"}, [1.0])[0]]
    assert labels([], twice) == ["ddp, 1 rank (no. 1)", "ddp, 1 rank (no. 2)"]


def test_a_size_that_the_strategy_has_in_its_words_and_one_of_one_rank_are_not_said_again() -> None:
    staged = repeats(0, {STRATEGY: "ddp", "parallelism.pipeline": 2}, [1.0])[0]
    staged = replace(staged, strategy="ddp, pipeline 2")
    plain = repeats(1, {STRATEGY: "ddp", "parallelism.pipeline": 1}, [1.0])[0]
    assert labels([STRATEGY, "parallelism.pipeline"], [staged, plain]) == ["ddp, pipeline 2", "ddp"]


def test_plans_are_told_apart_by_the_sizes_that_differ() -> None:
    paths = [STRATEGY, "parallelism.pipeline"]
    assert [words_of(paths, values) for values in (["ddp", 2], ["fsdp", 1])] == ["ddp, pipeline 2", "fsdp"]
    assert words_of(["parallelism.pipeline"], [1]) == "pipeline 1"
