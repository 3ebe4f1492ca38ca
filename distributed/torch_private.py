"""All that Paceline uses of torch without torch's promise to keep it: names that begin with an underscore, or lie in modules that do.

A new release of torch may rename any of them. Each has a test (`tests/distributed/test_torch_private.py`). Those of modules stand in `NAMES` and
are looked up when they are used: importing this module imports no torch, and what a release lacks is a TorchVersionError that names the tested
one. Those of tensors and modules are used as they are, since `torch.compile` may trace the functions around them.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.distributed.errors import TorchVersionError

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor, nn
    from torch._dynamo.exc import FailOnRecompileLimitHit as FailOnRecompileLimitHit
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather as AllGather
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter as ReduceScatter
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin as DefaultAllocMixin
    from torch.distributed.tensor import DTensor
    from torch.futures import Future
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map

#: The release of torch with which all of this is tested; `pyproject.toml` asks for it.
TESTED = "2.13"

_C10D, _BINDINGS = "torch.distributed.distributed_c10d", "torch._C._distributed_c10d"
#: The name here, then where torch has it: the module and the attribute. Those that are called as in torch are imported from here.
NAMES: Mapping[str, tuple[str, str]] = {
    "AllGather": ("torch.distributed.fsdp._fully_shard._fsdp_api", "AllGather"),
    "DefaultAllocMixin": ("torch.distributed.fsdp._fully_shard._fsdp_collectives", "DefaultAllocMixin"),
    "FailOnRecompileLimitHit": ("torch._dynamo.exc", "FailOnRecompileLimitHit"),
    "FakeTensorMode": ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    "ReduceScatter": ("torch.distributed.fsdp._fully_shard._fsdp_api", "ReduceScatter"),
    "TorchDispatchMode": ("torch.utils._python_dispatch", "TorchDispatchMode"),
    "tree_leaves": ("torch.utils._pytree", "tree_leaves"),
    "tree_map": ("torch.utils._pytree", "tree_map"),
    "abort_group": (_C10D, "_abort_process_group"),
    "add_to_each": ("torch", "_foreach_add_"),
    "allocation": ("torch._C._profiler", "_EventType.Allocation"),
    "attention_cudnn": ("torch", "ops.aten._scaled_dot_product_cudnn_attention.default"),
    "attention_efficient": ("torch", "ops.aten._scaled_dot_product_efficient_attention.default"),
    "attention_flash": ("torch", "ops.aten._scaled_dot_product_flash_attention.default"),
    "attention_flash_cpu": ("torch", "ops.aten._scaled_dot_product_flash_attention_for_cpu.default"),
    "clear_sharding_cache": ("torch.distributed.tensor.debug", "_clear_sharding_prop_cache"),
    "compiler_config": ("torch._dynamo", "config"),
    "groups": (_C10D, "_world.pg_map"),
    "local_part": ("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset"),
    "multiply_each": ("torch", "_foreach_mul_"),
    "no_torch_function": ("torch._C", "_disabled_torch_function_impl"),
    "ranks_of_groups": (_C10D, "_world.pg_group_ranks"),
    "register_group": (_BINDINGS, "_register_process_group"),
    "set_element": ("torch.distributed.checkpoint._traverse", "set_element"),
    "work_of_future": (_BINDINGS, "_create_work_from_future"),
}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return find(name)


def find(name: str) -> Any:
    """Return torch's object that is called `name` here. Raises TorchVersionError where this release of torch has nothing there."""
    module, attribute = NAMES[name]
    try:
        return attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise lacking(f"{module}.{attribute}") from error


def lacking(what: str) -> TorchVersionError:
    """The error that this release of torch lacks something that Paceline needs of it."""
    return TorchVersionError(
        f"torch {version('torch')} has no {what}; Paceline is tested with torch {TESTED}: run `pip install 'torch=={TESTED}.*'`"
    )


@cache
def warn_if_untested() -> None:
    """Warn, once in a process, of a release of torch that Paceline is not tested with."""
    found = version("torch")
    if found.split("+")[0].split(".")[:2] != TESTED.split("."):
        warnings.warn(f"torch {found} is used; Paceline is tested with torch {TESTED}", RuntimeWarning, stacklevel=2)


# -- process groups


def abort_nccl_groups() -> None:
    """End NCCL's communicators of this process, whatever waits in them. `ProcessGroup.abort` would leave torch's own books behind."""
    find("abort_group")()


def living_groups() -> list[dist.ProcessGroup]:
    """This process's groups that are not destroyed."""
    return list(find("groups"))


def register_group(group: dist.ProcessGroup, name: str, ranks: Sequence[int]) -> None:
    """Make a group of our own known to torch, by its name and with the world's numbers of its ranks, until the world is destroyed."""
    find("ranks_of_groups")[group] = {rank: place for place, rank in enumerate(ranks)}
    find("register_group")(name, group)


def work_of(future: Future[Any]) -> dist.Work:
    """A collective's handle that is done when the future is."""
    work: dist.Work = find("work_of_future")(future)
    return work


# -- distributed tensors and checkpoints


def clear_sharding_cache() -> None:
    """Drop what torch keeps of each operation on DTensors, with the meshes that it was done on."""
    find("clear_sharding_cache")()


def local_shape_and_offset(tensor: DTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of what this rank holds of a tensor, and where in the whole it begins."""
    shape, offset = find("local_part")(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(shape), tuple(offset)


def set_element(state: dict[str, Any], path: tuple[Any, ...], value: object) -> None:
    """Put a value into nested dicts and lists, which are made where they are missing."""
    find("set_element")(state, path, value)


# -- tensors and modules


def multiply_each(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """In place, in few kernels for all of them."""
    find("multiply_each")(tensors, factor)


def add_to_each(sums: Sequence[Tensor], terms: Sequence[Tensor]) -> None:
    """In place, in few kernels for all of them."""
    find("add_to_each")(sums, terms)


def storage_key(tensor: Tensor) -> int:
    """Return a key that all tensors in one storage share, on the meta device as well, where addresses are all zero."""
    return int(tensor.untyped_storage()._cdata)


def own_parameters(module: nn.Module) -> dict[str, Any]:
    """A module's parameters without those of its children, to be changed: by name, None for one that it was built without."""
    return module._parameters


def own_buffers(module: nn.Module) -> dict[str, Any]:
    """A module's buffers without those of its children, to be changed: by name, None for one that it was built without."""
    return module._buffers


def convolve(layer: Any, inputs: Tensor, weight: Tensor) -> Tensor:
    """The forward pass of a convolution of any dimension, its padding mode included, with another weight than its own."""
    outputs: Tensor = layer._conv_forward(inputs, weight, layer.bias)
    return outputs


def attention_operations() -> frozenset[Any]:
    """The kernels that `scaled_dot_product_attention` may come down to."""
    return frozenset(map(find, ("attention_cudnn", "attention_efficient", "attention_flash", "attention_flash_cpu")))


# -- compiler and profiler


def keep_blocks_whole() -> None:
    """Turn off the optimizer for DDP, which cuts compiled graphs at its buckets."""
    find("compiler_config").optimize_ddp = False


def is_allocation(event: Any) -> bool:
    """Whether an event of the profiler is one of an allocator: memory taken, or given back."""
    return bool(event.tag == _allocation())


@cache
def _allocation() -> Any:
    """Kept, since a profile may have a hundred thousand events."""
    return find("allocation")


@cache
def keep_table_of_blocks() -> None:
    """From now on, for good, torch's CPU allocator counts what any thread gives back: blocks that are freed while it does not would stay in its
    table. It takes about a microsecond of each allocation.

    The allocator counts for a thread that is profiled; for all others only while a flag of its library is set. That flag has no binding, and is
    read from neither the environment nor a configuration: only its address in the library is left."""
    import torch

    library = "libc10.dylib" if sys.platform == "darwin" else "libc10.so"
    flag = "FLAGS_caffe2_report_cpu_memory_usage"
    try:
        ctypes.c_bool.in_dll(ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / library)), flag).value = True
    except (OSError, ValueError) as error:
        raise lacking(f"{flag} in {library}") from error
