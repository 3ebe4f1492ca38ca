"""A model in stages, called as one process calls its model: what comes in goes through all stages, what comes out to every rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parallelism.cut.tensor_parallel import EvenSequences
from parallelism.pipelines.step import Pipe


class Relay(nn.Module):
    """All ranks of the world call it together, those of a pipeline with the same tensor, of any shape. One stage computes at a time and no gradient
    is kept: for a sample text, not for training."""

    def __init__(self, model: nn.Module, pipe: Pipe, holders: Sequence[int], even: EvenSequences | None) -> None:
        """`holders`: the place along the pipeline of each stage; `even`: where sequences are cut."""
        super().__init__()
        self.model = model  # whoever asks for parameters, or sets evaluation mode, means its
        self._pipe, self._holders, self._even = pipe, tuple(holders), even

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        passed = self._even.pad(inputs) if self._even else inputs
        for number, holder in enumerate(self._holders):
            stage = self._pipe.stages.get(number)
            passed = self._spread(None if stage is None else stage.outputs(passed), self._pipe.ranks[holder])
        return self._even.trim(passed) if self._even else passed

    def _spread(self, found: Tensor | None, source: int) -> Tensor:
        """To the whole pipeline; `found` is None on ranks other than `source`."""
        group = self._pipe.group
        shape, dtype = group.gather(None if found is None else (tuple(found.shape), found.dtype))[source]
        if found is None:
            found = torch.empty(shape, dtype=dtype, device=self._pipe.device)
            group.receive(found, source)
            return found
        found = found.contiguous()
        for rank in self._pipe.ranks:
            if rank != source:
                group.send(found, rank)
        return found
