"""A loop of one's own whose losses go bad: what `on_nan` and `on_spike` make of it, alike on every rank and in every layout."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.distributed.env import RANK_FOLDER, position
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolReader
from paceline.training.errors import InvalidInputError
from paceline.training.optim.bad_loss import BadLossError, LossNotFiniteError, LossSpikeError
from paceline.training.own_loop.trainer import Trainer
from paceline.training.rank_folder import RankFolder
from paceline.training.task import Batch
from tests.launched import run_launched
from tests.training.own_loop.loops import Normed, build, optimizer_of, own_batch, whole

UPDATES = 6
BAD = 3  # the update whose samples are poisoned, from 1
SKIP = {"on_nan": "skip_update"}


@dataclass
class Went:
    """A run of a rank. `states`: the model and the optimizer after each update."""

    losses: list[float] = field(default_factory=list)
    held_back: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    states: list[dict[str, list[float]]] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    raised: str = ""


def poisoned(step: int, accumulation: int, rank: int) -> Batch:
    """The batch of this rank. That of the last rank has a NaN in the bad update, in its last batch."""
    inputs, targets = own_batch(step, accumulation)
    if step == BAD * accumulation - 1 and rank == position().world_size - 1:
        inputs = inputs.clone()
        inputs[0, 0] = math.nan
    return inputs, targets


def went(options: dict[str, Any], model: str = "normed", directory: str = "") -> Went:
    """Train on this rank to the end, or to the error that ends it."""
    if directory:
        os.environ[RANK_FOLDER] = str(Path(directory) / str(position().rank))
        Path(os.environ[RANK_FOLDER]).mkdir()
    found, accumulation = Went(), options.get("gradient_accumulation_steps", 1)
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as warned, Trainer(Normed() if model == "normed" else build(), **options) as trainer:
        warnings.simplefilter("always")
        optimizer = optimizer_of(trainer.model)
        try:
            for step in range(UPDATES * accumulation):
                update = trainer.train_step(poisoned(step, accumulation, position().rank), optimizer, F.mse_loss, step)
                if update is None:
                    continue
                found.losses.append(update.loss)
                found.held_back += [update.step // accumulation] if update.held_back else []
                found.skipped.append(update.skipped_updates)
                found.scales.append(update.scale.value)
                found.states.append(whole(trainer.model) | moments(trainer.model, optimizer))
        except BadLossError as error:
            found.raised = f"{type(error).__name__}: {error}"
            found.states.append(whole(trainer.model) | moments(trainer.model, optimizer))
    found.warned = [str(each.message) for each in warned if "loss" in str(each.message)]
    return found


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, list[float]]:
    found = {}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            found[f"{name}.{kind}"] = (value.full_tensor() if hasattr(value, "full_tensor") else value).flatten().tolist()
    return found


LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "alone": (1, {}),
    "ddp": (2, {}),
    "ddp in two batches": (2, {"gradient_accumulation_steps": 2}),
    "clipped": (2, {"gradient_clip_val": 0.5}),
    "fsdp": (2, {"strategy": "fsdp"}),
    "fp16": (2, {"mixed_precision": "fp16"}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_with_a_poisoned_sample_changes_nothing_on_any_rank(layout: str) -> None:
    """Neither parameters nor moments nor running statistics, of the ranks whose samples are good either; the step counts. In fp16 the loss scale
    stays too: it was not too large."""
    world_size, options = LAYOUTS[layout]
    for rank, run in enumerate(run_launched(went, world_size, options | SKIP)):
        assert [math.isfinite(loss) for loss in run.losses] == [update != BAD for update in range(1, UPDATES + 1)]
        assert (run.held_back, run.raised) == ([BAD], "")
        before, after, later = run.states[BAD - 2], run.states[BAD - 1], run.states[-1]
        assert before == after
        assert later != after
        assert any("running_mean" in name for name in after)
        assert all(math.isfinite(value) for values in later.values() for value in values)
        assert run.scales[BAD - 1] == run.scales[BAD - 2]
        expected = [f"the batch of rank {world_size - 1} at step {BAD * options.get('gradient_accumulation_steps', 1)} has a loss of nan"]
        assert [line for line in run.warned if line.startswith("the batch")] == (expected if rank == world_size - 1 else [])


def test_without_a_policy_the_update_is_applied_as_ever() -> None:
    (run,) = run_launched(went, 1, {})
    assert run.held_back == run.warned == []
    assert any(not math.isfinite(value) for values in run.states[BAD - 1].values() for value in values)


def test_a_job_is_told_of_the_update_and_its_curve_has_no_loss_there(tmp_path: Path) -> None:
    """In the curve it would be taken for one that spoils what is trained from there on."""
    first, _ = run_launched(went, 2, SKIP, "normed", str(tmp_path))
    told = [events_of(tmp_path, rank) for rank in range(2)]
    ((kind, data),) = told[0]
    assert (kind, data["step"], data["what"], data["act"], data["loss"]) == ("bad_loss", BAD, "not_finite", "skip_update", "NaN")
    assert told[1] == []
    records = [msgspec.json.decode(payload, type=MetricRecord) for payload in SpoolReader(RankFolder.at(tmp_path / "0").metrics).read()]
    assert [record.step for record in records] == list(range(1, UPDATES + 1))
    assert [record.values.get("loss") for record in records] == [loss if math.isfinite(loss) else None for loss in first.losses]
    assert [record.values.get("skipped_updates") for record in records] == [None] * (BAD - 1) + [1.0] * (UPDATES - BAD + 1)
    assert first.warned == [f"the loss of step {BAD} is NaN: the update was skipped"]


def events_of(folder: Path, rank: int) -> list[tuple[str, dict[str, Any]]]:
    payloads = SpoolReader(RankFolder.at(folder / str(rank)).events).read()
    return [(event.kind, event.data) for event in (msgspec.json.decode(payload, type=RankEvent) for payload in payloads)]


def test_stop_raises_on_every_rank_with_the_state_of_before_the_update() -> None:
    for run in run_launched(went, 2, {"on_nan": "stop"}):
        assert run.raised.startswith(f"LossNotFiniteError: the loss of step {BAD} is NaN: the job is stopped before the update")
        assert run.states[-1] == run.states[-2]
        assert len(run.losses) == BAD - 1


class OneWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight


def losses_given(trainer: Trainer, losses: list[float]) -> list[bool]:
    """Train a batch for each loss; say which updates were held back."""
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.0)
    found = []
    for loss in losses:
        update = trainer.train_step(torch.full((2, 1), loss), optimizer, lambda outputs, _: outputs.mean(), trainer.next_step)
        assert update is not None
        found.append(update.held_back)
    return found


@pytest.mark.filterwarnings("ignore:the (loss|batch) of")
def test_after_twenty_in_a_row_it_is_not_the_batch() -> None:
    with Trainer(OneWeight(), on_nan="skip_update") as trainer:
        assert losses_given(trainer, [1.0] + [math.inf] * 20) == [False] + [True] * 20
        with pytest.raises(LossNotFiniteError, match=r"the loss of step 22 is infinite.* after 20 skipped updates in a row"):
            losses_given(trainer, [math.inf])
    with Trainer(OneWeight(), on_nan="skip_update") as trainer:
        assert sum(losses_given(trainer, ([math.inf] * 20 + [1.0]) * 2)) == 40


@pytest.mark.filterwarnings("ignore:the (loss|batch|gradients) of")
def test_gradients_that_are_no_numbers_count_though_the_loss_is_one() -> None:
    """The square root of a zero, multiplied by zero: its derivative is NaN."""
    with Trainer(OneWeight(), on_nan="skip_update") as trainer:
        optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
        update = trainer.train_step(torch.zeros(2, 1), optimizer, lambda outputs, _: (outputs * 0).sqrt().mean(), 0)
        assert update is not None
        assert (update.loss, update.held_back) == (0.0, True)
        assert trainer.model.get_parameter("weight").item() == 1.0


@pytest.mark.filterwarnings("ignore:the (loss|batch) of")
def test_a_spike_is_held_back_or_stops_and_is_known_again_after_a_restart(tmp_path: Path) -> None:
    """What the losses were is in the checkpoint."""
    with Trainer(OneWeight(), on_spike="skip_update", checkpoint_dir=tmp_path) as trainer:
        assert losses_given(trainer, [1.0] * 40 + [9.0, 1.0]) == [False] * 40 + [True, False]
        trainer.save_checkpoint(torch.optim.SGD(trainer.model.parameters(), lr=0.0))
    with Trainer(OneWeight(), on_spike="stop", checkpoint_dir=tmp_path) as trainer:
        trainer.load_checkpoint(torch.optim.SGD(trainer.model.parameters(), lr=0.0))
        with pytest.raises(LossSpikeError, match="the loss of step 43 is a spike: 9, above the limit"):
            losses_given(trainer, [9.0])


def test_what_a_loop_cannot_do_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInputError, match=r"on_nan=roll_back is for models and entrypoints.*use skip_update"):
        Trainer(OneWeight(), on_nan="roll_back")
    with pytest.raises(InvalidInputError, match="on_spike='skip' is not known; use warn, stop or skip_update"):
        Trainer(OneWeight(), on_spike="skip")
