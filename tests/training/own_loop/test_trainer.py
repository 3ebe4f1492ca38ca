"""What a Trainer asks of its user, and what it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from paceline.distributed.env import RANK_FOLDER
from paceline.distributed.errors import LaunchError
from paceline.monitoring.points import STEP_PARTS, MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolReader
from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.options import read_precision
from paceline.training.own_loop.trainer import Trainer
from paceline.training.rank_folder import RankFolder
from tests.event_files import read_scalars
from tests.launched import run_launched
from tests.training.own_loop.loops import Normed, Small, build, folder_of, optimizer_of, own_batch, train


def test_after_every_update_it_says_what_that_came_to() -> None:
    with Trainer(Small(), gradient_accumulation_steps=2) as trainer:
        optimizer = optimizer_of(trainer.model)
        assert trainer.train_step(own_batch(0, 2), optimizer, F.mse_loss, 0) is None
        assert trainer.performance_metrics() == {}
        update = trainer.train_step(own_batch(1, 2), optimizer, F.mse_loss, 1)
        assert update is not None
        assert (update.step, update.samples, trainer.next_step) == (2, 16, 2)
        assert sum(update.parts.values()) == pytest.approx(update.seconds)
        metrics = trainer.performance_metrics()
        assert metrics["samples_per_second"] == pytest.approx(16 / update.seconds)
        assert metrics["loss"] == update.loss
        assert {*STEP_PARTS, "step_seconds", "memory_bytes", "peak_memory_bytes", "gradient_norm", "learning_rate"} <= metrics.keys()
        assert not {"mfu", "tokens_per_second"} & metrics.keys(), "nobody said what a sample is"


def test_parameters_that_the_optimizer_does_not_hold_collect_no_gradients() -> None:
    with Trainer(Small()) as trainer:
        held, *forgotten = trainer.model.parameters()
        optimizer = torch.optim.SGD([held], lr=0.0)
        norms = [trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, step) for step in range(3)]
    assert forgotten
    assert len({update.gradient_norm for update in norms if update}) == 1, "the same batch has the same gradients each time"


def test_tokens_per_second_follow_from_what_a_sample_is() -> None:
    with Trainer(Small(), tokens_per_sample=128) as trainer:
        trainer.train_step(own_batch(0, 1), optimizer_of(trainer.model), F.mse_loss, 0)
        metrics = trainer.performance_metrics()
    assert metrics["tokens_per_second"] == pytest.approx(128 * metrics["samples_per_second"])


def test_tensorboard_reads_the_curve(tmp_path: Path) -> None:
    losses = train({"log_dir": tmp_path}, 3).losses
    points = read_scalars(tmp_path)
    assert [point.step for point in points["loss"]] == [1, 2, 3]
    assert [point.value for point in points["loss"]] == pytest.approx(losses)
    assert "step_seconds" in points


def test_every_rank_has_event_files_of_its_own(tmp_path: Path) -> None:
    losses = run_launched(train, 2, {"log_dir": tmp_path}, 3)[0].losses
    assert [point.value for point in read_scalars(tmp_path)["loss"]] == pytest.approx(losses)
    assert [point.step for point in read_scalars(tmp_path / "rank-1")["step_seconds"]] == [1, 2, 3]
    assert "loss" not in read_scalars(tmp_path / "rank-1"), "it is the job's, not a rank's"


@pytest.mark.parametrize(("given", "precision"), [(True, "bf16"), (False, "fp32")])
def test_mixed_precision_may_be_a_yes_or_no(given: bool, precision: str) -> None:
    assert read_precision(given) == precision


def test_in_a_job_every_rank_fills_its_own_spool(tmp_path: Path) -> None:
    losses = run_launched(train_in_a_job, 2, str(tmp_path))[0]
    for rank in range(2):
        folder = RankFolder.at(tmp_path / str(rank))
        records = [msgspec.json.decode(payload, type=MetricRecord) for payload in SpoolReader(folder.metrics).read()]
        assert [record.step for record in records] == [1, 2, 3]
        assert all("step_seconds" in record.values for record in records)
        assert [record.values.get("loss") for record in records] == (losses if rank == 0 else [None] * 3)


def train_in_a_job(directory: str) -> list[float]:
    import os

    folder = Path(directory) / os.environ["RANK"]
    folder.mkdir()
    os.environ[RANK_FOLDER] = str(folder)
    return train({}, 3).losses


def test_a_job_is_told_what_is_saved_and_the_step_from_which_its_ranks_go_on(tmp_path: Path) -> None:
    """With accumulation the numbers alone do not tell it: the first update after the load is some batches further."""
    for saved in (True, False):
        folder = tmp_path / str(saved)
        run_launched(load_in_a_job, 2, str(folder), str(tmp_path / "checkpoints"), saved)
        told = [SpoolReader(RankFolder.at(folder / str(rank)).events).read() for rank in range(2)]
        events = [[msgspec.json.decode(payload, type=RankEvent) for payload in payloads] for payloads in told]
        restored = [event.data for event in events[0] if event.kind == "checkpoint_restored"]
        assert restored == ([] if saved else [{"directory": str(tmp_path / "checkpoints"), "step": 8}])
        told_saves = [event.data for event in events[0] if event.kind == "file_saved"]
        if saved:  # wherever the folder is: an agent looks below the working directory alone
            (save,) = told_saves
            assert (save["path"], save["step"]) == (str(folder_of(tmp_path / "checkpoints", 8)), 8)
            assert save["bytes"] > 0
        else:
            assert told_saves == []
        assert events[1] == []


def load_in_a_job(directory: str, checkpoints: str, save: bool) -> None:
    import os

    folder = Path(directory) / os.environ["RANK"]
    folder.mkdir(parents=True)
    os.environ[RANK_FOLDER] = str(folder)
    settings: dict[str, Any] = {"gradient_accumulation_steps": 4, "checkpoint_dir": checkpoints}
    if save:
        train(settings, 2, save_at=2)
        return
    with Trainer(build(), **settings) as trainer:
        optimizer = optimizer_of(trainer.model)
        assert trainer.load_checkpoint(optimizer) == 8
        for step in range(8, 12):
            trainer.train_step(own_batch(step, 4), optimizer, F.mse_loss, step)
        trainer.load_checkpoint(optimizer, folder_of(Path(checkpoints), 8))  # the best one, at the end


class Named(nn.Module):
    """As transformers' models: named arguments in, an object with the loss out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Any:
        outputs = self.linear(inputs)
        return type("Output", (), {"loss": None if labels is None else F.mse_loss(outputs, labels), "logits": outputs})()


def test_a_batch_may_name_its_parts_and_a_model_may_know_its_loss() -> None:
    inputs, labels = own_batch(0, 1)
    model = Named()
    expected = F.mse_loss(model.linear(inputs), labels).item()
    with Trainer(model) as trainer:
        optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.0)
        update = trainer.train_step({"inputs": inputs, "labels": labels}, optimizer, None, 0)
        assert update is not None
        assert update.loss == pytest.approx(expected)
        update = trainer.train_step(
            {"inputs": inputs}, optimizer, lambda outputs, batch: (outputs.logits - batch["inputs"]).abs().mean(), 1
        )
        assert update is not None
        assert update.samples == len(inputs)
        with pytest.raises(InvalidInputError, match="give a criterion"):
            trainer.train_step({"inputs": inputs}, optimizer, None, 2)


@pytest.mark.parametrize(
    ("criterion", "problem"),
    [
        (lambda outputs, targets: (outputs - targets).square(), r"of shape \(16, 4\); return a scalar"),
        (lambda outputs, targets: (outputs - targets).mean().item(), "returned float"),
        (lambda outputs, targets: (outputs - targets).mean().detach(), "without detach"),
    ],
)
def test_a_loss_that_is_none_is_refused(criterion: Any, problem: str) -> None:
    with Trainer(Small()) as trainer, pytest.raises(InvalidInputError, match=problem):
        trainer.train_step(own_batch(0, 1), optimizer_of(trainer.model), criterion, 0)


def test_a_batch_without_samples_is_refused_before_it_makes_the_loss_nan() -> None:
    with Trainer(Small()) as trainer:
        optimizer = optimizer_of(trainer.model)
        inputs, targets = own_batch(0, 1)
        with pytest.raises(InvalidInputError, match="the batch has no samples"):
            trainer.train_step((inputs[:0], targets[:0]), optimizer, F.mse_loss, 0)


def test_what_is_asked_of_a_closed_trainer_is_refused_in_words() -> None:
    trainer = Trainer(Small())
    optimizer = optimizer_of(trainer.model)
    trainer.close()
    for call in (lambda: trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, 0), lambda: trainer.load_checkpoint(optimizer)):
        with pytest.raises(InvalidInputError, match="the Trainer is closed"):
            call()


def test_a_step_out_of_order_is_refused() -> None:
    with Trainer(Small()) as trainer:
        optimizer = optimizer_of(trainer.model)
        trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, 0)
        with pytest.raises(InvalidInputError, match="was given step 0, but 1 is next"):
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, 0)


def test_an_optimizer_of_parameters_that_sharding_has_replaced_is_refused() -> None:
    for problem in run_launched(stale_optimizer, 2):
        assert "make it after the Trainer" in problem


def stale_optimizer() -> str:
    model = Small()
    optimizer = optimizer_of(model)
    with Trainer(model, strategy="fsdp") as trainer:
        try:
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, 0)
        except InvalidInputError as error:
            return str(error)
    return "it was taken"


def test_models_that_differ_between_ranks_are_refused_on_all_of_them() -> None:
    for problem in run_launched(another_model, 2):
        assert "blocks.0.0.weight is float32[4, 4] on rank 0 and float32[5, 4] on rank 1" in problem


def another_model() -> str:
    import os

    model = Small()
    if os.environ["RANK"] == "1":
        model.blocks[0][0] = nn.Linear(4, 5)  # type: ignore[operator]
    try:
        Trainer(model)
    except InvalidInputError as error:
        return str(error)
    return "it was taken"


def test_evaluation_is_without_gradients_and_training_goes_on_after_it() -> None:
    with Trainer(Normed()) as trainer:
        with trainer.evaluation() as model:
            assert not model.training
            assert not model(torch.ones(2, 4)).requires_grad
        assert trainer.model.training


def test_a_world_that_nobody_says_how_to_meet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(LaunchError, match="WORLD_SIZE=2 but MASTER_ADDR or MASTER_PORT is not set"):
        Trainer(Small())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"strategy": "horovod"}, "strategy='horovod' .* use single, ddp, fsdp or auto"),
        ({"strategy": {"strategy": "fsdp", "tensor": 2}}, "tensor=2 needs to know the model's insides"),
        ({"strategy": {"strategy": "fsdp", "replicas": 2}}, "`replicas` is not a field of parallelism; did you mean `replicate`"),
        ({"strategy": "ddp", "cpu_offload": True}, "cpu_offload=true is for strategy fsdp, not ddp"),
        ({"strategy": "fsdp", "cpu_offload": True}, "in a world of 1 each rank has all of it"),
        ({"strategy": {"strategy": "fsdp", "replicate": 2}}, "does not divide world size 1"),
        ({"mixed_precision": "no"}, "mixed_precision='no' is not known; use fp32, bf16 or fp16"),
        ({"gradient_accumulation_steps": 0}, "use 1 to update after every batch"),
        ({"gradient_accumulation_steps": "4"}, "gradient_accumulation_steps='4' is of type str; give a whole number"),
        ({"gradient_clip_val": 0.0}, "use None not to clip"),
        ({"gradient_clip_val": "1"}, "gradient_clip_val='1' is not a positive number"),
        ({"seed": "x"}, "seed='x' is of type str; give a whole number"),
        ({"activation_checkpointing": "some"}, "activation_checkpointing takes none, selective or full; got 'some'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        Trainer(Small(), **options)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="the model has nothing to train"):
        Trainer(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(InvalidInputError, match="meta device"):
        Trainer(nn.Linear(2, 2, device="meta"))


class Cached(Normed):
    """With a cache that grows with the batch, as of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.cache = torch.zeros(len(inputs))
        return super().forward(inputs)


def test_an_update_that_is_skipped_leaves_a_cache_as_far_as_it_has_grown() -> None:
    with Trainer(Cached(), mixed_precision="fp16") as trainer:
        before = trainer.model.get_buffer("norm.running_mean").clone()
        optimizer = optimizer_of(trainer.model)
        trainer.train_step(own_batch(0, 1), optimizer, lambda outputs, _: outputs.float().mean() * torch.inf, 0)
        assert trainer.model.get_buffer("norm.running_mean").equal(before)
        assert len(trainer.model.get_buffer("cache")) == len(own_batch(0, 1)[0])


class Labelled(NamedTuple):
    inputs: Tensor
    labels: Tensor
    weights: Tensor


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        output: Tensor = self.head(inputs) * weights
        return output


def test_a_batch_with_names_has_them_in_the_criterion() -> None:
    inputs, targets = own_batch(0, 1)
    with Trainer(Weighted()) as trainer:
        batch = Labelled(inputs, targets, torch.ones(len(inputs), 1))
        assert trainer.train_step(
            batch, optimizer_of(trainer.model), lambda outputs, batch: F.mse_loss(outputs, batch.labels) * batch.weights.mean(), 0
        )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNN(4, 4)

    def forward(self, packed: PackedSequence) -> Tensor:
        output: Tensor = self.cell(packed)[0].data
        return output


def test_a_packed_sequence_is_one_input() -> None:
    packed = pack_sequence([torch.ones(3, 4), torch.ones(2, 4)])
    with Trainer(Recurrent()) as trainer:
        update = trainer.train_step(
            (packed, torch.zeros(5, 4)), optimizer_of(trainer.model), lambda outputs, targets: F.mse_loss(outputs, targets), 0
        )
        assert update is not None
