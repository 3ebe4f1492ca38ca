"""Who writes what of a state."""

from __future__ import annotations

from pathlib import Path

import torch

from scripts.torture.saver import digest, state_at, vault_at
from training.saving import checkpoint
from training.saving.parts import form_of
from training.saving.vault import open_vault


def test_states_of_one_form_are_divided_once_and_others_anew(tmp_path: Path) -> None:
    vault = vault_at(tmp_path / "job", 1)
    open_vault(vault, ())
    checkpoint.save(vault, state_at(1), {})
    first = vault.division._plan
    checkpoint.save(vault, state_at(2), {})
    assert vault.division._plan is first
    larger, found = state_at(3), state_at(0)
    for state in (larger, found):
        state.task.model.register_buffer("more", torch.full((3,), float(state.step)))
    committed = checkpoint.save(vault, larger, {})
    assert vault.division._plan is not first
    checkpoint.load(vault.group, found, committed.directory, committed.manifest)
    assert digest(found) == digest(larger)


def test_a_form_is_names_shapes_and_types_and_no_numbers() -> None:
    tensors = {"model": {"a": torch.zeros(2)}, "optimizer": {"lr": 0.1, "betas": (0.9, 0.99)}}
    assert form_of(tensors) == form_of({"model": {"a": torch.ones(2)}, "optimizer": {"lr": 0.2, "betas": (0.8, 0.9)}})
    for other in ({"a": torch.zeros(3)}, {"b": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.float64)}, {"a": torch.zeros(2), "b": 1}):
        assert form_of(tensors | {"model": other}) != form_of(tensors)
    assert form_of({"betas": (0.9,)}) != form_of({"betas": (0.9, 0.99)})
