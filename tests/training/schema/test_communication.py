"""The `communication` section: what it means, what it may stand beside, and the sentences that refuse the rest."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.planning.estimates import setup_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec

GPT: dict[str, Any] = {
    "name": "gpt",
    "resources": {"slots": 4},
    "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 32, "context": 16},
    "data": {"kind": "stdlib_text"},
    "training": {"steps": 10, "global_batch_size": 8},
}


def spec_of(communication: Any, **changes: Any) -> JobSpec:
    return JobSpec.model_validate(GPT | {"communication": communication} | changes)


def test_auto_is_short_for_leaving_both_to_measurement() -> None:
    spec = spec_of("auto")
    assert spec.communication == spec_of({"algorithm": "auto", "compression": "auto"}).communication
    assert spec.communication.is_auto
    assert not derived.is_reproducible(spec)
    assert not setup_of(spec).keeps_unsent, "nothing is left out unless the job allows it"
    allowed = spec_of({"algorithm": "auto", "compression": "auto", "lossy": True})
    assert setup_of(allowed).keeps_unsent, "it may come to keep what is not sent"
    assert spec.communication.algorithms_on("cpu") == {"backend", "ring", "hierarchical"}
    assert spec.communication.algorithms_on("cuda") == {"backend", "hierarchical"}, "a ring is for the host alone"


def test_exact_ways_alone_may_be_chosen_between() -> None:
    spec = spec_of({"algorithm": "auto"})
    assert spec.communication.compression == "none"
    assert not setup_of(spec).keeps_unsent
    assert spec.communication.algorithms_on("cuda") == frozenset(), "nothing is left to choose"


@pytest.mark.parametrize(
    ("communication", "on_cpu", "on_cuda"),
    [
        ({"algorithm": "hierarchical", "compression": "top_k"}, {"hierarchical"}, {"hierarchical"}),
        ({"algorithm": "hierarchical"}, {"hierarchical"}, set()),
        ({"algorithm": "ring"}, {"ring"}, set()),
        ({"compression": "bf16"}, {"backend"}, {"backend"}),
        ({}, set(), set()),
    ],
)
def test_gradients_are_compressed_between_machines_on_gpus_too(communication: Any, on_cpu: set[str], on_cuda: set[str]) -> None:
    """On GPUs NCCL makes exact sums by itself; of compressed ones a hierarchy had become a sum over all ranks."""
    asked = spec_of(communication).communication
    assert (asked.algorithms_on("cpu"), asked.algorithms_on("cuda")) == (on_cpu, on_cuda)


def test_options_of_a_compression_count_where_it_may_be_chosen() -> None:
    assert spec_of({"compression": "auto", "ratio": 0.05, "rank": 4}).communication.ratio == 0.05


@pytest.mark.parametrize(
    ("communication", "changes", "words"),
    [
        (
            {"algorithm": "ring", "compression": "auto"},
            {},
            "algorithm=ring sums gradients whole, so that compression=auto has nothing to choose",
        ),
        ({"algorithm": "ring", "compression": "top_k"}, {}, "algorithm=ring sums gradients whole, and compression=top_k does not"),
        (
            {"compression": "bf16", "lossy": True},
            {},
            "communication.lossy=true is for compression auto, not bf16: leave it out, or use auto",
        ),
        ({"algorithm": "auto", "ratio": 0.1}, {}, "communication.ratio=0.1 is for compression top_k, not none"),
        ("auto", {"reproducible": True}, "reproducible=true sums gradients in an order of its own"),
        (
            "auto",
            {"parallelism": {"strategy": "fsdp"}},
            "communication.compression=auto is between replicas, and fsdp without replicate has one",
        ),
        (
            "auto",
            {"parallelism": {"strategy": "parameter_server", "servers": 1}},
            "use strategy ddp, or fsdp with replicate, not parameter_server",
        ),
        ("automatic", {}, "communication='automatic' is no section: write auto, or one such as {compression: bf16}"),
        ({"algorithm": "tree"}, {}, "'backend', 'ring', 'hierarchical' or 'auto'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(communication: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        spec_of(communication, **changes)
