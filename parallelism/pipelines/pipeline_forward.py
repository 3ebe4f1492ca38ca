"""The whole model of a pipeline as one module: inputs go through all stages, and every rank gets the outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.parallelism.pipelines.step import StageLink
from paceline.parallelism.tensor_context.tensor_parallel import SequencePadding


class PipelineForward(nn.Module):
    """A forward pass through all stages, without gradients. One stage computes at a time: for sample texts, not for training.

    All ranks of the world call it together, those of one pipeline with the same tensor, of any shape.
    """

    def __init__(self, model: nn.Module, link: StageLink, holders: Sequence[int], padding: SequencePadding | None) -> None:
        """`holders`: by stage, the index of its rank in the pipeline. `padding`: pads sequences that are sharded; None: they are whole."""
        super().__init__()
        self.model = model  # a submodule, so that parameters and evaluation mode are those of the model
        self._link, self._holders, self._padding = link, tuple(holders), padding

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        passed = self._padding.pad(inputs) if self._padding else inputs
        for number, holder in enumerate(self._holders):
            stage = self._link.stages.get(number)
            passed = self._spread(None if stage is None else stage.outputs(passed), self._link.ranks[holder])
        return self._padding.trim(passed) if self._padding else passed

    def _spread(self, found: Tensor | None, source: int) -> Tensor:
        """Send `found` from rank `source` to all ranks of the pipeline and return it; it is None on all other ranks."""
        group = self._link.group
        shape, dtype = group.gather(None if found is None else (tuple(found.shape), found.dtype))[source]
        if found is None:
            found = torch.empty(shape, dtype=dtype, device=self._link.device)
            group.receive(found, source)
            return found
        found = found.contiguous()
        for rank in self._link.ranks:
            if rank != source:
                group.send(found, rank)
        return found
