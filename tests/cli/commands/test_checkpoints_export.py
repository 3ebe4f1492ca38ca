"""`paceline export`: a checkpoint's model as safetensors, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from paceline.training.own_loop.trainer import Trainer
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(3, 2)


@pytest.fixture
def checkpoint(tmp_path: Path, model: nn.Module) -> Path:
    with Trainer(model, checkpoint_dir=tmp_path / "checkpoints") as trainer:
        optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
        trainer.train_step((torch.ones(4, 3), torch.zeros(4, 2)), optimizer, F.mse_loss, 0)
        return trainer.save_checkpoint(optimizer)


def require_same(folder: Path, model: nn.Module) -> None:
    found = load_file(folder / "model.safetensors")
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


def test_a_folder_is_exported_without_a_coordinator(stranger: Paceline, checkpoint: Path, model: nn.Module) -> None:
    done = stranger("export", str(checkpoint), "-d", "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["step"], document["tensors"], document["files"]) == (1, 2, ["model.safetensors"])
    assert document["folder"] == str(stranger.folder / "out")
    require_same(stranger.folder / "out", model)
    again = stranger("export", str(checkpoint), "-d", "out")
    assert (again.returncode, again.stdout) == (6, "")
    assert "give a folder that does not exist yet" in again.stderr


def test_an_id_is_looked_up_and_people_are_told_what_comes_next(
    paceline: Paceline, coordinator: FakeCoordinator, checkpoint: Path, model: nn.Module
) -> None:
    coordinator.on("GET", "/checkpoints/C1", Answer(200, {"directory": str(checkpoint)}))
    done = paceline("export", "C1", "-d", "out")
    assert done.returncode == 0, done.stderr
    assert f"initial_weights: {paceline.folder / 'out'}" in done.stderr
    require_same(paceline.folder / "out", model)


def test_a_folder_on_another_machine_is_no_use_here(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/checkpoints/C1", Answer(200, {"directory": "/nowhere/step-1.g1"}))
    done = paceline("export", "C1", "-d", "out")
    assert done.returncode == 2
    assert "/nowhere/step-1.g1, which this machine does not see" in done.stderr
    assert "export it on a node of its job" in done.stderr


def test_what_is_no_checkpoint_is_an_error_in_one_line(stranger: Paceline) -> None:
    (stranger.folder / "empty").mkdir()
    done = stranger("export", "empty", "-d", "out")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no readable manifest.json" in done.stderr.splitlines()[-1]
