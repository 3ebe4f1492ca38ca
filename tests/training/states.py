"""What a job's newest checkpoint holds."""

from __future__ import annotations

from pathlib import Path

import torch

from distributed.process_group import SoloGroup
from tests.gangs import Job
from training import checkpoint
from training import manifest as manifests
from training.spec import JobSpec
from training.state import new_state


def final_state(job: Job) -> dict[str, torch.Tensor]:
    """Parameters and running statistics by name."""
    folder = Path(job.newest_first()[0])
    state = new_state(JobSpec.model_validate(job.spec), torch.device("cpu"), job.folder)
    checkpoint.load(SoloGroup(), state, folder, manifests.read(folder))
    return dict(state.task.model.state_dict())
