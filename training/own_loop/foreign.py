"""Checkpoints of other programs: one file that torch.save wrote, such as `checkpoint_epoch_5.pt`. No code in it is run."""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor

from paceline.training.errors import InvalidInputError

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
MODEL_KEYS = ("model_state_dict", "state_dict", "model")
OPTIMIZER_KEYS = ("optimizer_state_dict", "optimizer")
#: What wrappers put before the names of parameters.
PREFIXES = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")
#: What a group of any optimizer may have besides its settings; schedules of torch add `initial_lr`.
SETTINGS_OF_ALL = {"params", "param_names", "initial_lr"}


@dataclass(frozen=True)
class ForeignCheckpoint:
    """`optimizer`: as of torch.optim.Optimizer.state_dict, or None. `step`, `epoch`: as the file counts them, or None."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any] | None
    step: int | None
    epoch: int | None


#: What torch.load raises for files that are damaged, or are something else: their first bytes decide how far its unpickler comes.
UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, ValueError, TypeError, AttributeError, struct.error)
#: Names the class that torch's reader of tensors does not build.
REFUSED_OBJECT = re.compile(r"Unsupported global: GLOBAL ([\w.]+)")


def is_foreign(path: Path) -> bool:
    return path.suffix in SUFFIXES and not path.is_dir()


def read_foreign(path: Path) -> ForeignCheckpoint:
    """Read a file of torch.save. Raises InvalidInputError if it is missing, holds objects other than tensors, or no model."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InvalidInputError(
            f"no checkpoint {path} ({error.strerror}); give a file of torch.save or a folder that Paceline saved"
        ) from error
    except UNREADABLE as error:
        if refused := REFUSED_OBJECT.search(str(error)):
            raise InvalidInputError(
                f"{path} holds a {refused[1]}, which is read by running code; save state_dicts and numbers in it, not whole objects"
            ) from error
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidInputError(
            f"{path} cannot be read as tensors ({why}); save state_dicts and numbers in it, not whole objects"
        ) from error
    return parse(path, found)


def parse(path: Path, found: object) -> ForeignCheckpoint:
    if not isinstance(found, Mapping):
        raise InvalidInputError(f"{path} holds a {type(found).__name__}, not a mapping with a model's state_dict")
    model = next((found[key] for key in MODEL_KEYS if isinstance(found.get(key), Mapping)), found)
    tensors = {bare_name(str(name)): value for name, value in model.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InvalidInputError(
            f"{path} holds no model: none of {', '.join(MODEL_KEYS)}, nor tensors by name; it has {sorted(map(str, found))[:8]}"
        )
    optimizer = next((found[key] for key in OPTIMIZER_KEYS if isinstance(found.get(key), Mapping)), None)
    return ForeignCheckpoint(tensors, optimizer, number(found, "global_step", "step"), number(found, "epoch"))


def bare_name(name: str) -> str:
    """Return a parameter's name without what wrappers have put before its parts."""
    for prefix in PREFIXES:
        name = name.replace(prefix, "") if prefix != "module." else name.removeprefix(prefix)
    return name


def number(found: Mapping[str, Any], *names: str) -> int | None:
    return next((int(found[name]) for name in names if isinstance(found.get(name), int)), None)


def put(found: ForeignCheckpoint, model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Load whole tensors into a model and its optimizer, which may both be sharded. Raises InvalidInputError if they do not fit."""
    try:
        present = get_model_state_dict(model)
        set_model_state_dict(model, {name: like(present.get(name), value) for name, value in found.model.items()})
    except (RuntimeError, KeyError) as error:
        raise InvalidInputError(f"{path} does not fit this model: {' '.join(str(error).split())}") from error
    if found.optimizer is not None:
        put_optimizer(found.optimizer, optimizer, model, path)


def put_optimizer(state: Mapping[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module, path: Path) -> None:
    """Load an optimizer's state, whose parameters go by their number, in the optimizer's order."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    try:
        check_settings(state["param_groups"], optimizer)
        state = regrouped(state, optimizer, model)
        numbered = {int(index): values for index, values in state["state"].items()}
        cut = {index: {name: like(parameters[index], value) for name, value in values.items()} for index, values in numbered.items()}
        optimizer.load_state_dict({"state": cut, "param_groups": list(state["param_groups"])})
    except (KeyError, IndexError, ValueError, TypeError, RuntimeError) as error:
        raise InvalidInputError(
            f"{path}: its optimizer's state does not fit this optimizer ({error}); use the same one, or leave it out"
        ) from error


def check_settings(saved: Sequence[Mapping[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError where the saved groups have settings that this optimizer does not know: another kind of optimizer has saved them."""
    unknown = {name for group in saved for name in group} - set(optimizer.defaults) - SETTINGS_OF_ALL
    if unknown:
        raise ValueError(f"{type(optimizer).__name__} has no {', '.join(sorted(unknown))}")


def regrouped(state: Mapping[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module) -> Mapping[str, Any]:
    """Return the state in the groups of `optimizer`, with their settings, if it was saved in a single group, in the order of the model's
    parameters, as of `AdamW(model.parameters())`. Else return it as it is."""
    own = optimizer.state_dict()["param_groups"]
    saved = state["param_groups"]
    if len(saved) != 1 or len(own) == 1:
        return state
    place = {id(parameter): at for at, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    everything = list(model.parameters())
    ordered = next((each for each in (everything, [p for p in everything if p.requires_grad]) if len(each) == len(saved[0]["params"])), [])
    moved = dict[int, Mapping[str, Any]]()
    for index, values in state["state"].items():
        parameter = ordered[saved[0]["params"].index(index)]
        wrong = [name for name, value in values.items() if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape]
        if wrong:
            raise ValueError(f"{wrong[0]} of parameter {index} has another shape")
        moved[place[id(parameter)]] = values
    return {"state": moved, "param_groups": own}


def like(parameter: Any, value: Any) -> Any:
    """Return a whole value, which every rank has, cut as `parameter` is; scalars, such as an optimizer's step, stay whole."""
    if isinstance(parameter, DTensor) and isinstance(value, Tensor) and value.shape == parameter.shape:
        return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None)
    return value
