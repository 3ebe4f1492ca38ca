"""An own loop on many ranks is the same training as a bare one in one process."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.launched import run_launched
from tests.training.own_loop.loops import CLIP, Small, bare, train

UPDATES = 20
RELATIVE = 1e-5
#: Eight and eleven bits of mantissa, in the forward pass of a model whose losses fall from 9 to 1.
RELATIVE_HALF = {"bf16": 0.05, "fp16": 0.01}
MOST_SKIPPED = {"bf16": 0, "fp16": 4}

PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "ddp alone": (1, {"strategy": "ddp"}),
    "ddp": (2, {"strategy": "ddp"}),
    "ddp in two batches": (2, {"strategy": "ddp", "gradient_accumulation_steps": 2}),
    "ddp, computed again": (2, {"strategy": "ddp", "activation_checkpointing": True}),
    "fsdp": (2, {"strategy": "fsdp"}),
    "fsdp in two batches": (2, {"strategy": "fsdp", "gradient_accumulation_steps": 2}),
    "fsdp, on the host": (2, {"strategy": "fsdp", "cpu_offload": True, "activation_checkpointing": "selective"}),
    "fsdp, two replicas": (4, {"strategy": {"strategy": "fsdp", "replicate": 2}}),
}


@pytest.mark.parametrize("plan", PLANS)
def test_losses_norms_and_parameters_are_those_of_a_bare_loop(plan: str) -> None:
    world_size, options = PLANS[plan]
    expected = bare(UPDATES)
    assert max(expected.norms) > CLIP, "nothing was clipped"
    for found in run_launched(train, world_size, options | {"gradient_clip_val": CLIP}, UPDATES):
        assert found.losses == pytest.approx(expected.losses, rel=RELATIVE)
        assert found.norms == pytest.approx(expected.norms, rel=RELATIVE)
        assert found.parameters.keys() == expected.parameters.keys()
        for name, values in expected.parameters.items():
            assert found.parameters[name] == pytest.approx(values, rel=RELATIVE, abs=RELATIVE * max(map(abs, values))), name


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step:UserWarning")  # the update before it may be one that is skipped
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_half_precision_losses_stay_near(strategy: str, precision: str) -> None:
    """But for the first updates in fp16, which are skipped until the loss scale fits."""
    options = {"strategy": strategy, "mixed_precision": precision, "gradient_clip_val": CLIP}
    ranks = run_launched(train, 2, options, UPDATES)
    skipped = [update for update, norm in enumerate(ranks[0].norms) if not math.isfinite(norm)]
    assert len(skipped) <= MOST_SKIPPED[precision]
    expected = bare(UPDATES, skipped)
    for found in ranks:
        assert found.losses == pytest.approx(expected.losses, rel=RELATIVE_HALF[precision])
        assert found.losses != pytest.approx(expected.losses, rel=RELATIVE), "this was fp32"


def with_dropout() -> Small:
    torch.manual_seed(0)
    return Small(dropout=0.5)


def test_dropout_depends_on_the_step_and_the_rank_and_leaves_the_users_random_numbers_alone() -> None:
    first, second = (run_launched(dropped, 2) for _ in range(2))
    assert first == second
    assert first[0][0] != first[1][0], "both ranks drop the same"
    assert len(set(first[0][0])) == len(first[0][0]), "every step drops the same"


def dropped() -> tuple[list[float], float]:
    """This rank's losses of one batch again and again, with a learning rate of zero; and a random number of its own before and after."""
    from paceline.training.own_loop.trainer import Trainer

    losses: list[float] = []

    def criterion(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = (outputs - targets).square().mean()
        losses.append(loss.item())
        return loss

    with Trainer(with_dropout()) as trainer:
        optimizer = torch.optim.SGD((p for p in trainer.model.parameters() if p.requires_grad), lr=0.0)
        torch.manual_seed(5)
        for step in range(4):
            trainer.train_step((torch.ones(8, 4), torch.zeros(8, 4)), optimizer, criterion, step)
        drawn = torch.rand(()).item()
    torch.manual_seed(5)
    assert drawn == torch.rand(()).item()
    return losses, drawn
