"""What a job's newest checkpoint holds."""

from __future__ import annotations

from pathlib import Path

import torch

from paceline.distributed import env
from paceline.distributed.solo_group import SoloGroup
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from tests.gangs import Job


def final_state(job: Job) -> dict[str, torch.Tensor]:
    """Parameters and running statistics by name."""
    folder = Path(job.newest_first()[0])
    spec = JobSpec.model_validate(job.spec | {"compile": False})  # it is only looked at
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    checkpoint.load(SoloGroup(), state, folder, manifests.read(folder))
    return dict(state.task.model.state_dict())
