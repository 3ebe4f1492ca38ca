"""The two halves of a backward add up to the whole one, and the second has the weights' products."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from paceline.parallelism.pipelines.chain import Chain, Unit
from paceline.parallelism.pipelines.deferred_weight_grads import DeferredWeightGrad, is_deferrable
from paceline.parallelism.pipelines.stage import GradientAccumulator, Stage

LAYERS = {
    "linear": (nn.Linear(6, 5), (3, 4, 6)),
    "linear of one row": (nn.Linear(6, 5, bias=False), (6,)),
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (3, 4, 9)),
    "conv2d": (nn.Conv2d(4, 6, 3, padding=2, dilation=2, bias=False), (3, 4, 7, 8)),
    "conv3d": (nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), (2, 2, 4, 5, 4)),
}
IMMEDIATE = {
    "subclass": (nn.modules.linear.NonDynamicallyQuantizableLinear(6, 5), (3, 6)),
    "mirrored edges": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (3, 4, 7, 8)),
    "edges by name": (nn.Conv2d(4, 6, 3, padding="same"), (3, 4, 7, 8)),
    "norm": (nn.LayerNorm(6), (3, 6)),
}


def stage_of(*modules: nn.Module) -> Stage:
    return Stage(Chain([Unit((module,), module) for module in modules]), DeferredWeightGrad(modules), GradientAccumulator())


def gradients_of(module: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in module.parameters()]


def assert_trains_alike(module: nn.Module, inputs: Tensor, precision: torch.dtype | None = None) -> None:
    """Two micro-batches, of which the second's backward comes between the halves of the first's."""
    plain, stage = copy.deepcopy(module), stage_of(module)
    batches = [inputs, inputs.flip(0)]
    with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
        whole = [batch.clone().requires_grad_() for batch in batches]
        wanted = [plain(batch) for batch in whole]
        found = [stage.forward(number, batch, gradient=True) for number, batch in enumerate(batches)]
    for each, own in zip(wanted, found, strict=True):
        assert torch.equal(each, own)
        each.backward(torch.ones_like(each))
    inputs_gradients = [stage.backward_input(number, torch.ones_like(own)) for number, own in enumerate(found)]
    for number in range(len(found)):
        stage.backward_weight(number)
    torch.testing.assert_close(inputs_gradients, [batch.grad for batch in whole])
    torch.testing.assert_close(gradients_of(module), gradients_of(plain))


@pytest.mark.parametrize("name", LAYERS | IMMEDIATE)
def test_two_halves_are_the_whole(name: str) -> None:
    module, shape = (LAYERS | IMMEDIATE)[name]
    assert_trains_alike(copy.deepcopy(module), torch.randn(shape))


@pytest.mark.parametrize("name", LAYERS)
def test_weights_come_in_the_second_half(name: str) -> None:
    module, shape = LAYERS[name]
    module = copy.deepcopy(module)
    stage = stage_of(module)
    outputs = stage.forward(0, torch.randn(shape), gradient=True)
    assert stage.backward_input(0, torch.ones_like(outputs)) is not None
    assert module.weight.grad is None
    stage.backward_weight(0)
    assert module.weight.grad is not None


@pytest.mark.parametrize("name", IMMEDIATE)
def test_what_may_compute_something_else_does_not_wait(name: str) -> None:
    assert not is_deferrable(IMMEDIATE[name][0])


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(nn.utils.spectral_norm, id="spectral norm"),
        pytest.param(nn.utils.weight_norm, id="weight norm"),
        pytest.param(functools.partial(prune.l1_unstructured, name="weight", amount=0.5), id="pruned"),
    ],
)
def test_layers_whose_weight_is_computed_from_a_parameter_are_trained(made: Callable[[nn.Module], nn.Module]) -> None:
    """Their parameter got no gradient, and only decayed."""
    with torch.no_grad():  # a weight that is no leaf of a graph yet can be copied
        module = nn.Sequential(made(nn.Linear(6, 5)), nn.Unflatten(1, (1, 5)), made(nn.Conv1d(1, 4, 3)))
    assert_trains_alike(module, torch.randn(4, 6))


def test_in_bf16_it_is_the_same_bits() -> None:
    assert_trains_alike(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6)), torch.randn(4, 6), torch.bfloat16)


def test_a_layer_may_be_called_twice() -> None:
    layer = nn.Linear(6, 6)
    assert_trains_alike(nn.Sequential(layer, nn.Tanh(), layer), torch.randn(4, 6))


def test_one_weight_may_be_in_two_layers() -> None:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    assert_trains_alike(nn.Sequential(first, nn.Tanh(), second), torch.randn(4, 6))


def test_frozen_weights_get_nothing() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    module[1].weight.requires_grad_(False)
    assert_trains_alike(module, torch.randn(4, 6))
    assert module[1].weight.grad is None


class Impatient(nn.Module):
    """Changes what the layer has been called with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs * 2
        outputs: Tensor = self.layer(hidden)
        hidden.add_(1)
        return outputs + hidden


def test_what_was_changed_in_place_is_no_silent_mistake() -> None:
    stage = stage_of(Impatient())
    outputs = stage.forward(0, torch.randn(4, 6), gradient=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stage.backward_input(0, torch.ones_like(outputs))


class Forgetful(nn.Module):
    """Computes its layers again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = checkpoint(self.layers, inputs, use_reentrant=False)
        return outputs


def test_what_backward_computes_again_can_wait_too() -> None:
    assert_trains_alike(Forgetful(), torch.randn(4, 6))


def test_outputs_may_be_changed_in_place() -> None:
    assert_trains_alike(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 1)), torch.randn(2, 3, 6, 6))
