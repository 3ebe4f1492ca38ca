"""What ranks do with a choice of an earlier generation: it is theirs on the machines where it was made, and begins anew on others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.sum_cost import Links
from paceline.parallelism.communication.trial import CommunicationTrial
from paceline.training.errors import InvalidInputError
from paceline.training.gradient_sums import FixedSums, agreed_trial, gradient_sums
from paceline.training.link import RankPlace
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from tests.ranks import make_world, run_ranks
from tests.training.specs import tiny_gpt

ON_ONE = [["here", "here"]]
EXACT = {"algorithm": "auto"}
RING = ReductionChoice("ring")


def agreed(
    world: RankPlace,
    hostnames: tuple[str, ...],
    kept: CommunicationTrial | None = None,
    communication: Any = EXACT,
    device: Literal["cpu", "cuda"] = "cpu",
) -> dict[str, Any]:
    """What is agreed on where the last rank alone may have been in an earlier generation."""
    spec = JobSpec.model_validate(tiny_gpt(world.world_size) | {"communication": communication})
    placed = msgspec.structs.replace(world, hostname=hostnames[world.rank])
    axes = {"replicate": [list(range(world.world_size))]}
    group = join(placed, GroupAborter(), axes, reduces=spec.communication.algorithms_on(device))
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    state.communication = kept if world.rank == world.world_size - 1 else None
    trial = agreed_trial(spec, placed, state, group)
    group.barrier_and_leave()
    return {"taken": trial.taken, "sums": trial.sums, "links": trial.links, "machines": trial.machines, "lossy": not trial.gave_up_lossy}


def ring_on_one_machine() -> CommunicationTrial:
    trial = CommunicationTrial({ReductionChoice(): 2.0, RING: 1.0}, machines=ON_ONE)
    trial.taken, trial.gave_up_lossy = RING, True
    return trial


def test_ranks_on_the_same_machines_go_on_with_what_was_found() -> None:
    ends = run_ranks(agreed, 2, ("here", "here"), ring_on_one_machine())
    assert (
        ends[0]
        == ends[1]
        == {"taken": RING, "sums": {ReductionChoice(): 2.0, RING: 1.0}, "links": Links(), "machines": ON_ONE, "lossy": False}
    )


@pytest.mark.parametrize(
    ("hostnames", "ways"),
    [(("here", "there"), ["backend", "ring"]), (("there", "here", "there", "here"), ["backend", "ring", "hierarchical"])],
    ids=["a rank elsewhere", "more ranks"],
)
def test_ranks_on_other_machines_probe_their_links_and_choose_anew(hostnames: tuple[str, ...], ways: list[str]) -> None:
    """They went on by the predictions of the machine that they had left, and never took a hierarchy that there was not at their start."""
    ends = run_ranks(agreed, len(hostnames), hostnames, ring_on_one_machine())
    assert all(end == ends[0] for end in ends)
    assert [each.algorithm for each in ends[0]["sums"]] == ways
    assert ends[0]["taken"] == ReductionChoice()
    assert sum(ends[0]["sums"].values()) < 1.0, "times of tiny sums here, not those that were kept"
    assert ends[0]["links"].between is not None
    assert ends[0]["machines"] == [sorted(hostnames)]
    assert not ends[0]["lossy"], "what was given up for its loss stays so"


HIERARCHICAL = {"algorithm": "hierarchical"}


@pytest.mark.parametrize(
    ("communication", "device", "hostnames", "ways"),
    [
        (HIERARCHICAL, "cpu", ("here", "here"), ["exactly, by a ring"]),
        (HIERARCHICAL, "cpu", ("a", "b", "a", "b"), ["exactly, by a hierarchy"]),
        (HIERARCHICAL | {"compression": "auto"}, "cpu", ("here", "here"), ["exactly, by a ring", "in bf16, by the backend"]),
        ({"algorithm": "ring"}, "cuda", ("here", "here"), ["exactly, by the backend"]),
    ],
    ids=["no hierarchy", "hierarchy", "no hierarchy, auto", "NCCL"],
)
def test_a_way_is_called_by_what_is_done_and_not_by_what_was_asked_for(
    communication: dict[str, str], device: str, hostnames: tuple[str, ...], ways: list[str]
) -> None:
    """A job with `hierarchical` on one machine told that its gradients were summed by a hierarchy; so did one on GPUs with `ring`, of a ring."""
    ends = run_ranks(agreed, len(hostnames), hostnames, None, communication, device)
    assert [[each.name for each in end["sums"]] for end in ends] == [ways] * len(hostnames)


@pytest.mark.parametrize("pattern", ["haed.*", "head"])
def test_a_pattern_that_excludes_nothing_is_refused(pattern: str) -> None:
    """The head was compressed all the same, and nothing told it."""
    spec = JobSpec.model_validate(tiny_gpt(1) | {"communication": {"compression": "top_k", "exclude": ["head.*", pattern]}})
    world = make_world(0, 1, 0, Path("/nonexistent"))
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    with pytest.raises(
        InvalidInputError,
        match=rf"communication.exclude: no parameter matches '{re.escape(pattern)}'; of the \d+ that the model has: embedding",
    ):
        gradient_sums(spec, world, state, SoloGroup())


def test_a_pattern_may_match_one_name_of_a_tied_parameter_alone() -> None:
    model = tiny_gpt(1)["model"] | {"tied_embeddings": True}
    spec = JobSpec.model_validate(tiny_gpt(1) | {"model": model, "communication": {"compression": "top_k", "exclude": ["head.*"]}})
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    assert isinstance(gradient_sums(spec, make_world(0, 1, 0, Path("/nonexistent")), state, SoloGroup()), FixedSums)
