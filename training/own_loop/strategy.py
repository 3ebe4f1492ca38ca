"""`strategy="auto"` of an own loop: replicas where every rank can hold the whole state, shards where it cannot. Pure.

Nothing is known of the activations of a user's model, so the state may take STATE_SHARE of a rank's memory and they have the rest. A job of
a built-in model chooses among all plans instead (`paceline.training.planning.auto`), since its layers are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

#: The share of a rank's memory for parameters, gradients and the optimizer's state.
STATE_SHARE = 0.6
#: AdamW keeps two values beside each parameter, in its own type. The Trainer does not know the optimizer yet.
OPTIMIZER_VALUES = 2


@dataclass(frozen=True)
class ChosenStrategy:
    name: str
    reason: str


def state_bytes(model: nn.Module) -> int:
    """Return the bytes of parameters, gradients and AdamW's state of `model`, whole on one rank."""
    fixed = sum(each.nbytes for each in model.parameters() if not each.requires_grad) + sum(each.nbytes for each in model.buffers())
    return fixed + sum(each.nbytes * (2 + OPTIMIZER_VALUES) for each in model.parameters() if each.requires_grad)


def choose(needed: int, least_memory: int, world_size: int) -> ChosenStrategy:
    """Choose for a state of `needed` bytes, where the rank with the least memory has `least_memory` bytes."""
    room = int(STATE_SHARE * least_memory)
    state = f"parameters, gradients and the state of AdamW take {in_gigabytes(needed)}"
    if world_size == 1:
        return ChosenStrategy("single", f"a world of one rank has nothing to divide; {state} of {in_gigabytes(least_memory)}")
    if needed <= room:
        return ChosenStrategy("ddp", f"{state}, and each of {world_size} ranks has {in_gigabytes(room)} for them: whole models talk least")
    return ChosenStrategy("fsdp", f"{state}, and a rank has only {in_gigabytes(room)} for them: {world_size} ranks hold a part each")


def in_gigabytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
