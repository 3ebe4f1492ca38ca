"""Training and evaluation mode of a model, parts of which its user may have frozen."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def frozen_in_evaluation(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the parts of a model that are in evaluation mode and have parameters, none of which is trained, such as a backbone to fine-tune on.

    Evaluation mode alone does not tell: models of Hugging Face are loaded in it, and are to be trained.
    """
    parameters = list(model.parameters())
    if parameters and not model.training and not any(parameter.requires_grad for parameter in parameters):
        yield model
        return
    for child in model.children():
        yield from frozen_in_evaluation(child)
