"""What ranks do with a choice of an earlier generation: it is theirs on the machines where it was made, and begins anew on others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.sum_cost import Links
from paceline.parallelism.communication.trial import CommunicationTrial
from paceline.training.gradient_sums import agreed_trial
from paceline.training.link import RankPlace
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt

ON_ONE = [["here", "here"]]
RING = ReductionChoice("ring")


def agreed(world: RankPlace, hostnames: tuple[str, ...], kept: CommunicationTrial) -> dict[str, Any]:
    """What is agreed on where only the last rank has been in an earlier generation."""
    spec = JobSpec.model_validate(tiny_gpt(world.world_size) | {"communication": {"algorithm": "auto"}})
    placed = msgspec.structs.replace(world, hostname=hostnames[world.rank])
    axes = {"replicate": [list(range(world.world_size))]}
    group = join(placed, GroupAborter(), axes, reduces=spec.communication.algorithms_on("cpu"))
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    state.communication = kept if world.rank == world.world_size - 1 else None
    trial = agreed_trial(spec, placed, state, group)
    group.barrier_and_leave()
    ways = sorted(each.algorithm for each in trial.sums)
    return {"taken": trial.taken, "ways": ways, "predicted": sum(trial.sums.values()), "links": trial.links, "machines": trial.machines}


def ring_on_one_machine() -> CommunicationTrial:
    trial = CommunicationTrial({ReductionChoice(): 2.0, RING: 1.0}, machines=ON_ONE)
    trial.taken = RING
    return trial


def test_ranks_on_the_same_machines_go_on_with_what_was_found() -> None:
    ends = run_ranks(agreed, 2, ("here", "here"), ring_on_one_machine())
    assert ends[0] == ends[1] == {"taken": RING, "ways": ["backend", "ring"], "predicted": 3.0, "links": Links(), "machines": ON_ONE}


@pytest.mark.parametrize(
    ("hostnames", "ways"),
    [(("here", "there"), ["backend", "ring"]), (("there", "here", "there", "here"), ["backend", "hierarchical", "ring"])],
    ids=["a rank elsewhere", "more ranks"],
)
def test_ranks_on_other_machines_probe_their_links_and_choose_anew(hostnames: tuple[str, ...], ways: list[str]) -> None:
    """They went on by the predictions of the machine that they had left, and never took a hierarchy that there was not at their start."""
    ends = run_ranks(agreed, len(hostnames), hostnames, ring_on_one_machine())
    assert all(end == ends[0] for end in ends)
    assert (ends[0]["taken"], ends[0]["ways"]) == (ReductionChoice(), ways)
    assert ends[0]["predicted"] < 1.0, "times of tiny sums here, not those that were kept"
    assert ends[0]["links"].between is not None
    assert ends[0]["machines"] == [sorted(hostnames)]
