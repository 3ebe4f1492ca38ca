"""Who writes what of a state."""

from __future__ import annotations

from pathlib import Path

import torch

from paceline.training.saving import checkpoint
from paceline.training.saving.checkpoint_directory import open_directory
from paceline.training.saving.parts import layout_of
from scripts.torture.saver import checkpoints_at, digest, state_at


def test_states_of_one_form_are_divided_once_and_others_anew(tmp_path: Path) -> None:
    checkpoints = checkpoints_at(tmp_path / "job", 1)
    open_directory(checkpoints, ())
    checkpoint.save(checkpoints, state_at(1), {})
    first = checkpoints.planner._plan
    checkpoint.save(checkpoints, state_at(2), {})
    assert checkpoints.planner._plan is first
    larger, found = state_at(3), state_at(0)
    for state in (larger, found):
        state.task.model.register_buffer("more", torch.full((3,), float(state.step)))
    committed = checkpoint.save(checkpoints, larger, {})
    assert checkpoints.planner._plan is not first
    assert isinstance(committed.directory, Path)
    checkpoint.load(checkpoints.group, found, committed.directory, committed.manifest)
    assert digest(found) == digest(larger)


def test_a_form_is_names_shapes_and_types_and_no_numbers() -> None:
    tensors = {"model": {"a": torch.zeros(2)}, "optimizer": {"lr": 0.1, "betas": (0.9, 0.99)}}
    assert layout_of(tensors) == layout_of({"model": {"a": torch.ones(2)}, "optimizer": {"lr": 0.2, "betas": (0.8, 0.9)}})
    for other in ({"a": torch.zeros(3)}, {"b": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.float64)}, {"a": torch.zeros(2), "b": 1}):
        assert layout_of(tensors | {"model": other}) != layout_of(tensors)
    assert layout_of({"betas": (0.9,)}) != layout_of({"betas": (0.9, 0.99)})
