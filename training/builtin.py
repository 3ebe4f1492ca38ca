"""The models and data that come with Paceline, as tasks."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.parallelism.deferred import Build, at_once
from paceline.training.data import cifar10, digits, mnist
from paceline.training.data.corpus import Corpus, open_corpus
from paceline.training.models.catalog import Model
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt import shard as gpt_shard
from paceline.training.models.gpt import stages as gpt_stages
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.hf import model as hf
from paceline.training.models.hf import shard as hf_shard
from paceline.training.models.hf import stages as hf_stages
from paceline.training.models.hf.config import HfModel
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp import stages as mlp_stages
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.mlp.sizes import CLASSIFICATION_SHAPES
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet import shape as resnet_shape
from paceline.training.models.resnet import stages as resnet_stages
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.planning.flops import flops_of
from paceline.training.schema.data import Cifar10, Data, Digits, Mnist, StdlibText, Tokens
from paceline.training.task import Batch, Loss, Task

SAMPLE_SEED = 0
SAMPLE_TEMPERATURE = 0.8


class Logits(Protocol):
    logits: Tensor  # (batch, time, vocabulary)


def builtin_task(model: Model, data: Data, cache: Path, build: Build = at_once) -> Task:
    """Return the task of a built-in model. `cache` holds what is derived from the data once per machine; `build` builds models of our
    own."""
    if isinstance(model, GptModel | HfModel):
        assert isinstance(data, StdlibText | Tokens)
        return text_task(model, data, cache, build)
    assert isinstance(data, Digits | Mnist | Cifar10)
    images, held_out_images = images_of(data, cache)
    if isinstance(model, ResnetModel) and isinstance(data, Digits):
        images, held_out_images = digits.coloured(images, resnet_shape.SIDE), digits.coloured(held_out_images, resnet_shape.SIDE)
    units = mlp_stages.units if isinstance(model, MlpModel) else resnet_stages.units
    built = build(functools.partial(classifier, model, data))
    return Task(built, images, classification_loss, evaluation=held_out_images, units=units)


def images_of(data: Digits | Mnist | Cifar10, cache: Path) -> tuple[digits.Images, digits.Images]:
    """Images to train on, and held-out ones."""
    match data:
        case Digits():
            return digits.load(data)
        case Mnist():
            return mnist.load(data, cache)
        case Cifar10():
            return cifar10.load(data, cache)


def text_task(model: GptModel | HfModel, data: StdlibText | Tokens, cache: Path, build: Build) -> Task:
    built, vocabulary = language_model(model, build)
    text = open_corpus(data, model.context, vocabulary, cache)
    sample = functools.partial(generate_text, corpus=text, context=model.context)
    parts: dict[str, Any] = (
        {"shard": gpt_shard.shard, "units": gpt_stages.units}
        if isinstance(model, GptModel)
        else {"shard": hf_shard.shard, "units": hf_stages.units}
    )
    if isinstance(model, HfModel) and flops_of(model, data) is None:
        parts["flops_per_sample"] = hf.flops_per_sample(built, model.context)
    return Task(built, text.train, next_token_loss, text.held_out, tokens_per_sample=model.context, sample=sample, **parts)


def language_model(model: GptModel | HfModel, build: Build) -> tuple[nn.Module, int]:
    """The model, and how many different tokens it knows."""
    if isinstance(model, GptModel):
        return build(functools.partial(gpt.build, model)), model.vocab_size
    built = hf.build(model)
    return built, hf.vocabulary_of(built)


def classifier(model: MlpModel | ResnetModel, data: Digits | Mnist | Cifar10) -> nn.Module:
    if isinstance(model, MlpModel):
        return mlp.build(model, *CLASSIFICATION_SHAPES[data.kind])
    return resnet.build(model)


def logits_of(output: Tensor | Logits) -> Tensor:
    """Return the logits of a model's output: a tensor, or an object of transformers that has them."""
    return output if isinstance(output, Tensor) else output.logits


def next_token_loss(model: nn.Module, batch: Batch) -> Loss:
    """Mean over the tokens of a window (batch, context + 1): every byte predicts the next one."""
    (windows,) = batch
    logits = logits_of(model(windows[:, :-1]))
    return F.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten()), {}


def classification_loss(model: nn.Module, batch: Batch) -> Loss:
    inputs, labels = batch
    logits = model(inputs).float()
    return F.cross_entropy(logits, labels), {"accuracy": (logits.argmax(-1) == labels).float().mean()}


@torch.no_grad()
def generate_text(model: nn.Module, tokens: int, corpus: Corpus, context: int) -> str:
    """Sample token by token; the whole context is read again each time, which is fine for a page of text."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(SAMPLE_SEED)
    text = torch.tensor([corpus.prompt], dtype=torch.long, device=device)
    for _ in range(tokens):
        chosen = draw(logits_of(model(text[:, -context:]))[0, -1, : corpus.vocabulary], generator)
        text = torch.cat((text, chosen.to(device).view(1, 1)), dim=1)
    return corpus.decode(text[0].tolist())


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    probabilities = torch.softmax(logits.float().cpu() / SAMPLE_TEMPERATURE, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)
