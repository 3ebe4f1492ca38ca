"""Survivors of a fault go on with what they have not sent up to the step that all go on from, not with what they once saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from paceline.distributed.compression.residuals import Residuals
from paceline.distributed.errors import GenerationOverError
from paceline.distributed.reduction import GradientPiece, ReductionState
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.reducers import Reducer
from paceline.parallelism.communication.trial import CommunicationTrial
from paceline.training import rank_process
from paceline.training.build import JoinedGeneration
from paceline.training.gradient_sums import FixedSums
from paceline.training.link import FailureReport, RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.rank_process import RankProcess
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec
from paceline.training.state import TrainState, new_state
from paceline.training.state_handoff import detach_state, rebuild_state
from tests.ranks import JOB_ID, make_world
from tests.training.specs import tiny_gpt

WEIGHT = [GradientPiece("w", (3,), 0, 3)]


class BrokenOff:
    """It has left ones out up to the last commit, and twos in the step under way."""

    def __init__(self) -> None:
        self._residuals = Residuals()
        for value in (1.0, 2.0):
            self._residuals.commit()
            self._residuals.put(torch.full((3,), value), WEIGHT)

    def state(self) -> ReductionState:
        return {"residual": self._residuals.by_parameter()}

    def commit(self) -> None:
        self._residuals.commit()


def generation_of(state: TrainState, process: RankProcess) -> JoinedGeneration:
    nothing: Any = None
    sums = FixedSums(cast("Reducer", BrokenOff()))
    return JoinedGeneration(process.spec, state, nothing, nothing, nothing, nothing, process.telemetry, None, sums, nothing)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[RankProcess]:
    folder = RankFolder(tmp_path, JOB_ID, 1, 0)
    folder.path.mkdir(parents=True)
    spec = tiny_gpt(2) | {"fault_tolerance": {"recovery": "close_up"}}
    order = RankOrder(
        spec=StoredSpec(spec),
        world=make_world(0, 2, 1, tmp_path / "checkpoints"),
        folder=str(folder.path),
        agent_socket=str(tmp_path / "a.sock"),
    )
    made = RankProcess(order)
    yield made
    made.close()


def test_a_fault_leaves_what_was_not_sent_until_now_and_not_what_was_saved(
    process: RankProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(_: JoinedGeneration) -> None:
        raise GenerationOverError("a peer is gone")

    state = new_state(process.spec, torch.device("cpu"), tmp_path)
    state.unsent = {"residual": {"w": torch.full((3,), 9.0)}}  # of the last save
    monkeypatch.setattr(rank_process, "build_generation", lambda *_: generation_of(state, process))
    monkeypatch.setattr(rank_process, "train", break_off)
    ended = process._run_generation(state)
    assert isinstance(ended, FailureReport)
    assert state.unsent["residual"]["w"].tolist() == [1.0] * 3  # for a rank that is level
    assert state.unsent_next["residual"]["w"].tolist() == [2.0] * 3  # for one that the others are a step ahead of


def test_a_state_in_parts_takes_along_what_is_not_sent_and_what_was_found_out_of_the_links(tmp_path: Path) -> None:
    spec = JobSpec.model_validate(tiny_gpt(4) | {"parallelism": {"strategy": "fsdp", "replicate": 2}, "reproducible": False})
    state = new_state(spec, torch.device("cpu"), tmp_path)
    unsent, unsent_next = {"residual": {"w@0/2": torch.ones(3)}}, {"residual": {"w@0/2": torch.zeros(3)}}
    state.unsent, state.unsent_next, state.communication = unsent, unsent_next, CommunicationTrial({ReductionChoice(): 1.0})
    rebuilt = rebuild_state(spec, torch.device("cpu"), tmp_path, detach_state(state, None))
    assert (rebuilt.unsent, rebuilt.unsent_next) == (unsent, unsent_next)
    assert rebuilt.communication is state.communication
