"""Checkpoints of an own loop: any strategy loads them, and the curve goes on as if nothing had happened."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paceline.training.errors import CheckpointCorruptError, CheckpointSaveError, InvalidInputError, NoUsableCheckpointError
from paceline.training.own_loop.faces import DistributedTrainer
from paceline.training.own_loop.saves import TrainingObjects
from paceline.training.own_loop.trainer import Trainer
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from tests.launched import run_launched
from tests.training.own_loop.loops import Normed, Small, bare, build, folder_of, optimizer_of, own_batch, train, whole

UPDATES = 8
HALFWAY = 4
PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "ddp on 2": (2, {"strategy": "ddp"}),
    "fsdp on 2": (2, {"strategy": "fsdp"}),
}


@pytest.mark.parametrize(
    ("before", "after"),
    [("ddp on 2", "single"), ("ddp on 2", "fsdp on 2"), ("fsdp on 2", "ddp on 2"), ("fsdp on 2", "single"), ("single", "fsdp on 2")],
)
def test_the_curve_goes_on_under_another_strategy(tmp_path: Path, before: str, after: str) -> None:
    expected = bare(UPDATES)
    for plan, options in ((before, {"save_at": HALFWAY}), (after, {"load": True})):
        world_size, strategy = PLANS[plan]
        settings = strategy | {"checkpoint_dir": str(tmp_path), "gradient_clip_val": 0.5}
        found = run_launched(run, world_size, settings, HALFWAY if plan == before else UPDATES, options)
    assert len(found[0].losses) == UPDATES - HALFWAY
    for each in found:
        assert each.losses == pytest.approx(expected.losses[HALFWAY:], rel=1e-5)


def run(settings: dict[str, Any], updates: int, options: dict[str, Any]) -> Any:
    return train(settings, updates, **options)


def test_a_manifest_says_what_was_saved(tmp_path: Path) -> None:
    (found,) = run_launched(run, 1, {"checkpoint_dir": str(tmp_path), "gradient_accumulation_steps": 2}, 3, {"save_at": 3})
    manifest = manifests.read(folder_of(tmp_path, 6))
    assert (manifest.job_id, manifest.step, manifest.generation) == ("own-loop", 6, 1)
    assert manifest.metrics == {"loss": found.losses[-1]}
    manifests.verify(folder_of(tmp_path, 6), manifest, manifest.files)


def test_the_newest_that_verifies_is_loaded_and_the_damaged_one_is_named(tmp_path: Path) -> None:
    settings = {"checkpoint_dir": str(tmp_path)}
    train(settings, 2, save_at=1)
    train(settings, 2, save_at=2, load=True)
    damage(folder_of(tmp_path, 2))
    with pytest.warns(UserWarning, match=r"step-2\.g\d+ is damaged, trying an older one"):
        found = train(settings, 3, load=True)
    assert len(found.losses) == 2
    damage(folder_of(tmp_path, 1))
    with pytest.raises(CheckpointCorruptError, match="do not match"):
        train(settings, 3, load=str(folder_of(tmp_path, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(NoUsableCheckpointError, match=r"tried step-2\.g\d+, step-1\.g\d+; give another directory"):
            train(settings, 3, load=True)


def test_it_loads_with_another_accumulation_and_from_any_path(tmp_path: Path) -> None:
    settings = {"gradient_clip_val": 0.5}
    train(settings | {"gradient_accumulation_steps": 2, "checkpoint_dir": str(tmp_path)}, 3, save_at=3)
    with Trainer(Normed(), gradient_accumulation_steps=4) as other, pytest.raises(InvalidInputError, match="does not fit"):
        other.load_checkpoint(optimizer_of(other.model), folder_of(tmp_path, 6))
    with Trainer(build(), gradient_accumulation_steps=4) as trainer:
        optimizer = optimizer_of(trainer.model)
        assert trainer.load_checkpoint(optimizer, folder_of(tmp_path, 6)) == 6
        updates = [trainer.train_step(own_batch(step, 4), optimizer, torch.nn.functional.mse_loss, step) for step in range(6, 10)]
    assert [update is not None for update in updates] == [False, False, False, True]


def test_what_overflows_in_fp16_is_skipped_and_the_scale_goes_on_after_a_load(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"mixed_precision": "fp16", "checkpoint_dir": tmp_path}
    inputs, targets = own_batch(0, 1)
    with Trainer(Normed(), **settings) as trainer:
        optimizer = optimizer_of(trainer.model)
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        skipped = trainer.train_step((inputs, targets), optimizer, lambda outputs, _: outputs.float().mean() * torch.inf, 0)
        assert skipped is not None
        assert skipped.scale.metrics == {"loss_scale": 2.0**15, "skipped_updates": 1.0}
        assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
        trainer.train_step((inputs, targets), optimizer, torch.nn.functional.mse_loss, 1)
        assert not torch.equal(trainer.model.state_dict()["head.weight"], before["head.weight"])
        trainer.save_checkpoint(optimizer)
    with Trainer(Normed(), **settings) as again:
        optimizer = optimizer_of(again.model)
        again.load_checkpoint(optimizer)
        update = again.train_step((inputs, targets), optimizer, torch.nn.functional.mse_loss, 2)
        assert update is not None
        assert update.scale.metrics == {"loss_scale": 2.0**15, "skipped_updates": 1.0}


def damage(folder: Path) -> None:
    data = next(folder.glob("__0_*"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)


def test_an_empty_directory_is_a_start(tmp_path: Path) -> None:
    assert train({"checkpoint_dir": str(tmp_path / "new")}, 2, load=True).losses == train({}, 2).losses


def test_nothing_saved_is_ever_overwritten(tmp_path: Path) -> None:
    with Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
        optimizer = optimizer_of(trainer.model)
        for _ in range(2):
            trainer.train_step(own_batch(0, 1), optimizer, torch.nn.functional.mse_loss, trainer.next_step)
            trainer.save_checkpoint(optimizer)
        with pytest.raises(CheckpointSaveError, match=r"step-2\.g1 is there already: .* train on first"):
            trainer.save_checkpoint(optimizer)
        assert trainer.load_checkpoint(optimizer, folder_of(tmp_path, 1)) == 1
        trainer.train_step(own_batch(0, 1), optimizer, torch.nn.functional.mse_loss, 1)
        trainer.save_checkpoint(optimizer)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-1.g1", "step-2.g1", "step-2.g2"]


def test_a_save_that_failed_leaves_nothing_and_the_next_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
        optimizer = optimizer_of(trainer.model)
        trainer.train_step(own_batch(0, 1), optimizer, torch.nn.functional.mse_loss, 0)
        with monkeypatch.context() as broken:
            broken.setattr(checkpoint.manifests, "publish", full_disk)  # type: ignore[attr-defined]
            with pytest.raises(CheckpointSaveError, match="No space left"):
                trainer.save_checkpoint(optimizer)
        assert list(tmp_path.glob("step-*")) == []
        manifests.read(trainer.save_checkpoint(optimizer))


def full_disk(*_: object) -> str:
    raise OSError(28, "No space left on device")


def test_in_the_middle_of_an_update_nothing_is_saved(tmp_path: Path) -> None:
    with Trainer(Normed(), checkpoint_dir=tmp_path, gradient_accumulation_steps=2) as trainer:
        optimizer = optimizer_of(trainer.model)
        with pytest.raises(InvalidInputError, match="after 0 batches nothing can be saved"):
            trainer.save_checkpoint(optimizer)
        trainer.train_step(own_batch(0, 2), optimizer, torch.nn.functional.mse_loss, 0)
        with pytest.raises(InvalidInputError, match=r"after 1 batches .* every 2 of them"):
            trainer.save_checkpoint(optimizer)


def test_without_a_directory_the_way_out_is_told() -> None:
    with Trainer(Normed()) as trainer, pytest.raises(InvalidInputError, match="give Trainer"):
        trainer.load_checkpoint(optimizer_of(trainer.model))


def test_running_statistics_are_saved_as_the_mean_of_all_ranks(tmp_path: Path) -> None:
    own = run_launched(normed, 2, str(tmp_path))
    (loaded,) = run_launched(statistics, 1, str(tmp_path))
    assert own[0] != own[1]
    assert loaded == pytest.approx([sum(values) / 2 for values in zip(*own, strict=True)], rel=1e-6)


def normed(directory: str) -> list[float]:
    """This rank's running mean before it was settled."""
    with Trainer(Normed(), checkpoint_dir=directory) as trainer:
        optimizer = optimizer_of(trainer.model)
        trainer.train_step(own_batch(0, 1), optimizer, torch.nn.functional.mse_loss, 0)
        own: list[float] = trainer.model.get_buffer("norm.running_mean").tolist()
        trainer.save_checkpoint(optimizer)
    return own


def statistics(directory: str) -> list[float]:
    with Trainer(Normed(), checkpoint_dir=directory) as trainer:
        trainer.load_checkpoint(optimizer_of(trainer.model))
        found: list[float] = trainer.model.get_buffer("norm.running_mean").tolist()
    return found


class Notes:
    """A user's own object in a checkpoint, whose dictionary may grow, and have any keys."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def state_dict(self) -> dict[str, object]:
        return {"kept": dict(self.kept)}

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        self.kept = state_dict["kept"]  # type: ignore[assignment]


def one_step(trainer: Trainer, optimizer: torch.optim.Optimizer) -> None:
    trainer.train_step(own_batch(0, 1), optimizer, torch.nn.functional.mse_loss, trainer.next_step)


def test_a_schedule_of_milestones_can_be_saved_after_each_load(tmp_path: Path) -> None:
    states = []
    for start in range(3):
        with Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
            optimizer = optimizer_of(trainer.model)
            scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
            assert trainer.load_checkpoint(optimizer, scheduler=scheduler) == start
            assert not states or scheduler.state_dict() == states[-1]
            one_step(trainer, optimizer)
            scheduler.step()
            trainer.save_checkpoint(optimizer, scheduler=scheduler)
            states.append(scheduler.state_dict())
    assert states[-1]["milestones"] == {2: 1, 5: 1}


def test_an_object_of_any_keys_that_has_grown_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    saved, loaded = Notes(), Notes()
    saved.kept = {"best": torch.tensor([1.0]), 3: {4: 0.5}, "history": [1, {"loss": 2.0}]}
    for notes in (saved, loaded):
        with Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
            optimizer = optimizer_of(trainer.model)
            if notes is loaded:
                trainer.load_checkpoint(optimizer, scheduler=notes)
            one_step(trainer, optimizer)
            trainer.save_checkpoint(optimizer, scheduler=notes)
    assert loaded.kept == saved.kept


def test_a_schedule_that_was_saved_value_by_value_is_still_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older, Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
        older.setattr(TrainingObjects, "tensors", functools.partialmethod(TrainingObjects.tensors, ("scheduler",)))
        optimizer = optimizer_of(trainer.model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        one_step(trainer, optimizer)
        scheduler.step()
        trainer.save_checkpoint(optimizer, scheduler=scheduler)
    with Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
        optimizer = optimizer_of(trainer.model)
        again = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        trainer.load_checkpoint(optimizer, scheduler=again)
        assert again.state_dict() == scheduler.state_dict()


class HalfUsed(Small):
    """With a layer that no loss depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(4, 4)


def half_used() -> nn.Module:
    torch.manual_seed(0)
    return HalfUsed()


def test_a_model_whose_loss_does_not_use_every_parameter_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    settings = {"checkpoint_dir": str(tmp_path), "strategy": "single"}
    straight = train(settings | {"checkpoint_dir": str(tmp_path / "straight")}, 4, make=half_used)
    train(settings, 2, save_at=2, make=half_used)
    resumed = train(settings, 3, save_at=3, load=True, make=half_used)
    again = train(settings, 4, load=True, make=half_used)
    assert resumed.losses + again.losses == straight.losses[2:]
    assert again.parameters == straight.parameters


def test_a_save_before_the_first_update_that_was_not_skipped_changes_nothing(tmp_path: Path) -> None:
    """The first one overflows in fp16, as is usual. Saved then, or saved and loaded, or not: the same training."""
    found = []
    for name in ("not saved", "saved", "loaded"):
        settings: dict[str, Any] = {"mixed_precision": "fp16", "checkpoint_dir": tmp_path / name}
        with Trainer(build(), **settings) as trainer:
            optimizer = optimizer_of(trainer.model)
            trainer.train_step(own_batch(0, 1), optimizer, lambda outputs, _: outputs.float().mean() * torch.inf, 0)
            if name != "not saved":
                trainer.save_checkpoint(optimizer)
            if name == "loaded":
                optimizer = optimizer_of(trainer.model)
                trainer.load_checkpoint(optimizer)
            for _ in range(3):
                one_step(trainer, optimizer)
            found.append((whole(trainer.model), {state["step"].item() for state in optimizer.state.values()}))
    assert found[0] == found[1] == found[2]
    assert found[0][1] == {2}  # the second one has overflowed too


def test_a_loop_that_was_saved_within_its_first_update_goes_on(tmp_path: Path) -> None:
    """An epoch of two batches, and an update after four."""
    settings: dict[str, Any] = {"checkpoint_dir": tmp_path, "gradient_accumulation_steps": 4}
    for epoch in range(2):
        with DistributedTrainer(build(), **settings) as trainer:
            optimizer = optimizer_of(trainer.model)
            assert trainer.load_checkpoint(optimizer) == 2 * epoch
            for step in range(2 * epoch, 2 * epoch + 2):
                loss = trainer.train_step(own_batch(step, 4), optimizer, torch.nn.functional.mse_loss, step)
            trainer.save_checkpoint(epoch, optimizer, loss)


def test_metrics_may_be_tensors_and_what_is_no_number_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with Trainer(Normed(), checkpoint_dir=tmp_path) as trainer:
        optimizer = optimizer_of(trainer.model)
        one_step(trainer, optimizer)
        metrics: dict[str, Any] = {"accuracy": torch.tensor(0.5), "loss": np.float32(0.25)}
        with pytest.raises(TypeError, match=r"metric recall: 'high' .* is not one real number"):
            trainer.save_checkpoint(optimizer, metrics=metrics | {"recall": "high"})
        assert not list(tmp_path.iterdir())
        assert manifests.read(trainer.save_checkpoint(optimizer, metrics=metrics)).metrics == {"accuracy": 0.5, "loss": 0.25}


def expanded() -> nn.Module:
    model = build()
    model.register_buffer("factor", torch.tensor(2.0).expand(3))
    return model


def test_a_model_with_a_buffer_whose_elements_share_memory_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    train({"checkpoint_dir": str(tmp_path)}, 1, save_at=1, make=expanded)
    assert train({"checkpoint_dir": str(tmp_path)}, 2, load=True, make=expanded).parameters["factor"] == [2.0, 2.0, 2.0]
