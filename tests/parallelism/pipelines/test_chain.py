"""A model as a chain: the costs of its units, the tensors between them, and what is left of the model on one rank."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor, nn

from paceline.parallelism.pipelines.chain import (
    Boundary,
    Unit,
    UnsplittableModelError,
    keep_only_units,
    measure,
    require_complete_units,
    sequential_units,
    trace,
)
from paceline.parallelism.pipelines.stages import partition_units
from paceline.parallelism.pipelines.step import inputs_of
from tests.parallelism.pipelines.runs import CONTEXT, Case, Step, make, make_frozen, make_gpt, make_normed

TOKENS = torch.zeros(4, CONTEXT, dtype=torch.long)


def test_blocks_weigh_by_their_operations_and_the_embedding_by_what_it_puts_out() -> None:
    model, units = make_gpt(layers=2, dim=16, vocab_size=1000)
    _, (embedding, first, second, head) = trace(model, units, TOKENS, contextlib.nullcontext())
    tokens = TOKENS.numel()
    assert embedding == tokens * 16
    assert head == 2 * tokens * 16 * 1000 + tokens * 1000
    assert first == second > 2 * tokens * (4 * 16 * 16)
    assert partition_units([embedding, first, second, head], 2) == (range(3), range(3, 4))  # a large vocabulary is a stage of its own


def test_boundaries_are_of_one_sample_and_tell_what_learns() -> None:
    model, units = make_frozen()
    boundaries, _ = trace(model, units, TOKENS, contextlib.nullcontext())
    assert boundaries[0] == Boundary((CONTEXT, 16), torch.float32, has_gradient=False)
    assert [boundary.has_gradient for boundary in boundaries] == [False] * 3 + [True] * 5
    assert boundaries[0].empty(3, torch.device("cpu")).shape == (3, CONTEXT, 16)


def test_tracing_and_measuring_leave_the_model_as_it_was() -> None:
    model, units = make_normed()
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    inputs = torch.randn(4, CONTEXT + 1, generator=torch.Generator().manual_seed(0))
    trace(model, units, inputs, contextlib.nullcontext())
    seconds = measure(model, units, inputs, contextlib.nullcontext)
    assert len(seconds) == len(units)
    assert all(each > 0 for each in seconds)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_what_is_kept_has_its_names_and_a_tied_copy_has_both_of_its() -> None:
    model, units = make_gpt(layers=2, tied_embeddings=True)
    keep_only_units(model, units, units[2:])
    assert {name for name, _ in model.named_parameters() if not name.startswith("blocks.1.")} == {"embedding.weight", "norm.weight"}
    assert {"embedding.weight", "head.weight", "blocks.1.attention.output.weight"} < set(model.state_dict())
    assert not any(name.startswith("blocks.0.") for name in model.state_dict())
    model, units = make_gpt(layers=2, tied_embeddings=False)
    keep_only_units(model, units, units[:2])
    assert {name.split(".")[0] for name in model.state_dict()} == {"embedding", "blocks"}


def test_a_parameter_of_no_unit_is_named() -> None:
    model, units = make_gpt(tied_embeddings=False)
    with pytest.raises(UnsplittableModelError, match=r"norm\.weight, head\.weight of Gpt belong to no unit"):
        require_complete_units(model, units[:-1])


def test_what_is_no_chain_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnsplittableModelError, match=r"Linear is no nn\.Sequential.*Task\.units, or train with ddp or fsdp"):
        sequential_units(nn.Linear(1, 1))
    mixing = [Unit((), lambda inputs: inputs.sum(0))]
    with pytest.raises(UnsplittableModelError, match=r"makes \[2\] of 3 samples; .* keeps them along dimension 0"):
        trace(nn.Module(), mixing, torch.zeros(3, 2), contextlib.nullcontext())


class Ignorant(Step):
    def loss(self, model: nn.Module, index: int, batch: Tensor) -> Tensor:
        return batch.float().mean()


def test_the_inputs_are_what_the_loss_calls_its_model_with() -> None:
    work = Step(Case(), 1)
    batch = work.batch(0)
    assert torch.equal(inputs_of(work, 0, batch), batch[:, :-1])
    with pytest.raises(UnsplittableModelError, match="the loss does not call the model"):
        inputs_of(Ignorant(Case(), 1), 0, batch)


@pytest.mark.parametrize("name", ["gpt", "mlp", "resnet", "normed"])
def test_a_chain_computes_what_the_model_does(name: str) -> None:
    case = Case(model=name)
    model, units = make(case)
    model.eval()
    work = Step(case, 1)
    inputs = inputs_of(work, 0, work.batch(0))
    outputs = inputs
    for unit in units:
        outputs = unit.run(outputs)
    assert torch.equal(outputs, model(inputs))
    require_complete_units(model, units)
