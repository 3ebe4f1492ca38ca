"""One hash for the same parameters, whoever saved them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.training.saving import manifest as manifests
from paceline.training.saving.fingerprint import combine_hashes, hash_tensor, owners
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt


def parameters() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weight": torch.randn(3, 4, generator=generator),
        "bias": torch.randn(4, generator=generator).to(torch.bfloat16),
        "running_mean": torch.zeros(4, dtype=torch.float64),
        "steps": torch.tensor(7),
        "transposed": torch.randn(4, 3, generator=generator).t(),
    }


def share(tensors: dict[str, torch.Tensor], rank: int, world_size: int) -> dict[str, str]:
    """The hashes that a rank makes, where every rank has all tensors."""
    return {name: hash_tensor(tensors[name]) for name, owner in owners([tensors] * world_size).items() if owner == rank}


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_any_number_of_ranks_comes_to_the_same_hash(world_size: int) -> None:
    whole = combine_hashes([share(parameters(), 0, 1)])
    assert combine_hashes(share(parameters(), rank, world_size) for rank in reversed(range(world_size))) == whole


def test_what_some_ranks_hold_is_hashed_by_one_of_them() -> None:
    """As in a pipeline, whose first and last rank have copies of a tied matrix."""
    held = [{"embedding", "first"}, {"middle"}, {"embedding", "last"}]
    found = owners(held)
    assert found.keys() == set().union(*held)
    assert all(name in held[rank] for name, rank in found.items())
    assert sorted(owners([{"a", "b", "c"}] * 3).values()) == [0, 1, 2]


@pytest.mark.parametrize("name", parameters())
def test_one_bit_shape_or_type_makes_another_hash(name: str) -> None:
    known = hash_tensor(parameters()[name])
    flipped = parameters()[name].contiguous()
    flipped.reshape(-1).view(torch.uint8)[0] ^= 1
    other = parameters()[name]
    assert known not in (hash_tensor(flipped), hash_tensor(other.reshape(-1, 1)), hash_tensor(other.to(torch.float16)))
    assert hash_tensor(parameters()[name]) == known


def test_who_is_called_what_matters() -> None:
    one, other = torch.ones(2), torch.zeros(2)
    assert combine_hashes([share({"a": one, "b": other}, 0, 1)]) != combine_hashes([share({"a": other, "b": one}, 0, 1)])


def test_checkpoints_of_one_run_on_any_world_have_one_hash(make_job: MakeJob) -> None:
    """The files of the three differ, their parameters do not."""
    found = []
    for world_size in (1, 2, 3):
        job = make_job(tiny_gpt(nodes=world_size, steps=4), f"on-{world_size}")
        job.run(world_size)
        found.append(manifests.read(Path(job.newest_first()[0])))
    assert len({manifest.parameters_sha256 for manifest in found}) == 1
    assert found[0].parameters_sha256 is not None
    assert len({frozenset(file.sha256 for file in manifest.files.values()) for manifest in found}) == 3
