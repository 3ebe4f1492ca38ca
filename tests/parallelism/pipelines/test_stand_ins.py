"""What a loss in a pipeline gets in place of the model: it was given plausible numbers where it asked for more than one call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from paceline.parallelism.pipelines.chain import UnsplittableModelError
from paceline.parallelism.pipelines.stand_ins import ModelCalled, StageInput, StageOutput

INPUTS = torch.zeros(2, 3)


def test_a_second_call_is_refused_in_place_of_the_outputs_of_the_first_one() -> None:
    """The outputs of both calls were equal, so that R-Drop's divergence was 0 and all contrastive pairs were alike."""
    model = StageOutput(torch.ones(2))
    assert model(INPUTS).tolist() == [1.0, 1.0]
    with pytest.raises(UnsplittableModelError, match=r"calls the model that it is given a second time; .* or train with ddp or fsdp"):
        model(INPUTS)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda model: sum(each.square().sum() for each in model.parameters()), "asks for the parameters of the model"),
        (lambda model: list(model.modules()), "asks for the modules of the model"),
        (lambda model: list(model.children()), "asks for the modules of the model"),
        (lambda model: list(model.buffers()), "asks for the buffers of the model"),
        (lambda model: model.state_dict(), "asks for the state of the model"),
        (lambda model: model.temperature, "reads 'temperature' of the model"),
        (lambda model: getattr(model, "temperature", 1.0), "reads 'temperature' of the model"),
    ],
)
@pytest.mark.parametrize("model", [StageInput(), StageOutput(torch.ones(2))])
def test_a_look_into_the_model_is_refused_in_place_of_an_empty_answer(
    model: nn.Module, look: Callable[[nn.Module], object], message: str
) -> None:
    with pytest.raises(UnsplittableModelError, match=message):
        look(model)


def test_code_that_unwraps_a_model_gets_the_stand_in() -> None:
    model = StageInput()
    with pytest.raises(ModelCalled) as called:
        (model.module if hasattr(model, "module") else model)(INPUTS)
    assert called.value.inputs is INPUTS


def test_without_gradients_the_mode_is_that_of_evaluation() -> None:
    assert [StageInput().training, StageOutput(INPUTS).training] == [True, True]
    with torch.no_grad():
        assert [StageInput().training, StageOutput(INPUTS).training] == [False, False]
