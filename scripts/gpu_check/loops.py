"""A job's steps on one device, and the loop that one would write by hand with torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.distributed import env
from paceline.parallelism.precision import autocast
from paceline.training.builtin import next_token_loss
from paceline.training.link import RankPlace
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.task import Dataset
from scripts.bench.parallel.ours import Built, build
from scripts.bench.parallel.turns import Loop


def spec_of(model: Mapping[str, Any], micro_batch: int, precision: str = "fp32", **changes: Any) -> JobSpec:
    """Return the spec of a job with one micro-batch a step."""
    fields = {
        "name": "gpu-check",
        "model": {"kind": "gpt", **model},
        "data": {"kind": "stdlib_text"},
        "parallelism": {"strategy": "single"},
        "precision": precision,
        "training": {"steps": 1_000_000, "global_batch_size": micro_batch, "micro_batch_size": micro_batch},
        "reproducible": False,
    }
    return JobSpec.model_validate(fields | changes)


def job(world: RankPlace, folder: Path, spec: JobSpec, device: torch.device) -> Built:
    return build(world, folder, env.cache_directory(), spec, device)


def bare(spec: JobSpec, data: Dataset, device: torch.device) -> Loop:
    """Return a bare loop over the same text."""
    assert isinstance(spec.model, GptModel)
    model = gpt.build(spec.model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    batch = derived.training_of(spec).global_batch_size

    def step() -> float:
        (windows,) = data.batch(torch.randint(len(data), (batch,)), None)
        with autocast(spec.precision, device):
            loss, _ = next_token_loss(model, (windows.to(device, non_blocking=True),))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step
