"""The tensors of a state by name, and back; those of a checkpoint, read by any world with torch.distributed.checkpoint."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors

from paceline.training.errors import CheckpointCorruptError, InvalidInputError
from paceline.training.saving.optimizer_names import kept_of, never_updated, parameters_kept
from paceline.training.saving.safe_reading import SafePlanner, SafeReader
from paceline.training.saving.tied import with_aliases, without_aliases

Tensors = dict[str, Any]

#: Before each of the optimizer's names in a checkpoint.
OPTIMIZER = "optimizer."

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


class TrainedModel(Protocol):
    @property
    def model(self) -> nn.Module: ...
    @property
    def optimizer(self) -> torch.optim.Optimizer: ...


def read(tensors: Tensors, folder: Path) -> None:
    """Read this rank's part of `tensors` in place, whatever world wrote them. A failure leaves some of them overwritten.

    Takes out of `tensors` what the optimizer keeps of each parameter that had not been updated yet when the checkpoint was saved.
    """
    try:
        reader = SafeReader(folder)
        leave_out(tensors.get("optimizer", {}), reader.read_metadata().state_dict_metadata)
        with quiet_when_alone():
            load_tensors(tensors, storage_reader=reader, planner=SafePlanner(), no_dist=True)
    except CheckpointException as error:
        cause = next(cause for cause, _ in error.failures.values())
        if isinstance(cause, CheckpointCorruptError):
            raise CheckpointCorruptError(f"{folder}: {cause}") from error
        if isinstance(cause, OSError):
            raise CheckpointCorruptError(f"{folder}: {cause}") from error
        raise InvalidInputError(f"{folder} does not fit this job's model and optimizer: {cause}") from error


def leave_out(flat: dict[str, Any], saved: Iterable[str]) -> None:
    """Take what an optimizer keeps of those parameters out of its flat form of which a checkpoint, whose values are `saved`, has nothing."""
    absent = never_updated(name.removeprefix(OPTIMIZER) for name in saved if name.startswith(OPTIMIZER))
    for name, owner in kept_of(flat).items():
        if owner in absent:
            del flat[name]


@contextlib.contextmanager
def quiet_when_alone() -> Iterator[None]:
    """torch warns that a process loads by itself, even when told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
        yield


def tensors_of(state: TrainedModel) -> Tensors:
    """Model and optimizer by parameter name, so that any plan can load them. Tied parameters are there once, by their first name."""
    if learns(state):
        with without_empty_groups(state.optimizer):
            model, optimizer = get_state_dict(state.model, state.optimizer, options=OPTIONS)
    else:
        model, optimizer = get_model_state_dict(state.model, options=OPTIONS), {}
    return {"model": without_aliases(model, state.model), "optimizer": optimizer}


def learns(state: TrainedModel) -> bool:
    """Return whether the optimizer has parameters. A pipeline stage may be all frozen; torch would report its optimizer's state as
    missing."""
    return any(group["params"] for group in state.optimizer.param_groups)


def put_tensors(state: TrainedModel, tensors: Tensors) -> None:
    """Load `tensors`, as `tensors_of` returns them, into the state. The optimizer keeps nothing of a parameter of which they have nothing."""
    if not learns(state):
        set_model_state_dict(state.model, with_aliases(tensors["model"], state.model), options=OPTIONS)
        return
    forget_never_updated(state, tensors["optimizer"])
    with without_empty_groups(state.optimizer):
        set_state_dict(
            state.model,
            state.optimizer,
            model_state_dict=with_aliases(tensors["model"], state.model),
            optim_state_dict=tensors["optimizer"],
            options=OPTIONS,
        )
    for parameter in [parameter for parameter, values in state.optimizer.state.items() if not values]:
        del state.optimizer.state[parameter]


def forget_never_updated(state: TrainedModel, flat: Tensors) -> None:
    """Empty what the optimizer keeps of each parameter of which `flat` has nothing. It stays known: torch makes the state of an optimizer anew that
    knows none."""
    absent = never_updated(flat)
    if absent and state.optimizer.state:
        for name, parameter in parameters_kept(state.optimizer, tensors_of(state)["optimizer"]).items():
            if name in absent:
                state.optimizer.state[parameter] = {}


@contextlib.contextmanager
def without_empty_groups(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Hide groups without parameters, which torch's functions cannot load: a parameter server's shard, or a model without biases, has such."""
    groups = optimizer.param_groups
    if all(group["params"] for group in groups):  # an optimizer around another one may not let its groups be set
        yield
        return
    optimizer.param_groups = [group for group in groups if group["params"]]
    try:
        yield
    finally:
        trained = iter(optimizer.param_groups)  # loading has put new ones in their place
        optimizer.param_groups = [next(trained) if group["params"] else group for group in groups]
