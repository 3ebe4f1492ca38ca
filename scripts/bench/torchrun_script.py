"""The peer of `first_step`: the same model and data, started by torchrun. Says so at its first step, then ends."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from paceline.distributed import env
from paceline.training.data import stdlib_text
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.schema.data import StdlibText

BATCH = 16
FIRST_STEP = "first step committed"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    spec = GptModel(layers=4, heads=4, dim=192, context=128)
    torch.manual_seed(0)
    model: nn.Module = DistributedDataParallel(gpt.build(spec))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    windows, _ = stdlib_text.load(StdlibText(), spec.context, env.cache_directory())
    (tokens,) = windows.batch(torch.arange(BATCH) + BATCH * dist.get_rank(), None)
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    dist.barrier()
    print(FIRST_STEP, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
