"""Random numbers of a forward pass: a function of where it stands, so that a checkpoint needs no generator's state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from paceline.training.data.sampler import derive_seed


@contextlib.contextmanager
def seeded(device: torch.device, *place: int) -> Iterator[None]:
    """Make torch's random numbers within the block depend on `place` alone. The caller's generators are left as they were."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        torch.default_generator.manual_seed(derive_seed(*place))
        if device.type == "cuda":
            torch.cuda.manual_seed(derive_seed(*place))
        yield
