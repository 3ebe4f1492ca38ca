"""Deferred construction: a model's operations are recorded before it is built, so that a model that will be sharded never exists whole.

The model's code runs on the meta device, where tensors have shapes and no values, and each operation is recorded (the idea of
deferred_init in pytorch/torchdistx). When the operations are replayed in order, for one tensor after another, the same random numbers are
drawn for the same places, and the bits are those of a model that is built at once. Values that a later operation overwrites are drawn and
dropped; values that are not asked for yet are kept.

Tensors are identified by their storages. A model whose code reads values, or uses tensors from elsewhere, cannot be deferred.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from paceline.distributed import torch_private
from paceline.distributed.torch_private import TorchDispatchMode, own_buffers, own_parameters, tree_leaves, tree_map

#: Builds a model from its constructor: at once, or deferred.
Build = Callable[[Callable[[], nn.Module]], nn.Module]
at_once: Build = operator.call

aten = torch.ops.aten
#: Operations that overwrite their first argument without reading it.
FILLS = frozenset({aten.normal_.default, aten.uniform_.default, aten.fill_.Scalar, aten.zero_.default})
CPU = torch.device("cpu")
RECIPE = "_recipe"


class NotDeferrableError(RuntimeError):
    """The code of a model does more than create tensors and compute with them."""


def defer(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the model without values; `materialize` computes them. Raises `NotDeferrableError`."""
    recorder, random_state = OperationRecorder(), torch.get_rng_state()
    with torch.device("meta"), recorder:
        model = build()
    vars(model)[RECIPE] = TensorRecipe(model, recorder, random_state)
    return model


def materialize(model: nn.Module, modules: Iterable[nn.Module]) -> None:
    """Compute the parameters and buffers of `modules`, parts of `model`, on the host. Does nothing for a model that was built at once."""
    recipe: TensorRecipe | None = vars(model).get(RECIPE)
    if recipe is not None:
        recipe.make(modules)


@dataclass(frozen=True)
class View:
    """A tensor, described by its storage and its place in it."""

    storage: int
    elements: int  # of the storage
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class RecordedCall:
    """One recorded operation, with views in the place of tensors."""

    function: Any
    inputs: tuple[tuple[Any, ...], dict[str, Any]]
    results: Any

    @cached_property
    def storages(self) -> set[int]:
        return {leaf.storage for leaf in tree_leaves((self.inputs, self.results)) if isinstance(leaf, View)}

    def overwrites(self, storage: int) -> bool:
        """Whether the operation sets all of a storage without reading it."""
        target = self.inputs[0][0] if self.function in FILLS else None
        return isinstance(target, View) and target.storage == storage and torch.Size(target.size).numel() == target.elements


class OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations on tensors while this mode is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[RecordedCall] = []
        self._storages: dict[int, tuple[int, torch.UntypedStorage]] = {}  # referenced, or an address could be reused

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        named = kwargs or {}
        inputs = tree_map(self._view_of if function in FILLS and is_whole(args[0]) else self.known, (args, named))
        results = function(*args, **named)
        if not function.is_view:
            self.calls.append(RecordedCall(function, inputs, tree_map(self._view_of, results)))
        return results

    def known(self, value: Any) -> Any:
        """Return the view of a tensor whose creation was recorded; other values are returned as they are. Raises `NotDeferrableError`."""
        if isinstance(value, Tensor) and address(value) not in self._storages:
            raise NotDeferrableError(
                f"a tensor of shape {tuple(value.shape)} on {value.device} comes from elsewhere; build the model at once"
            )
        return self._view_of(value)

    def _view_of(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        number, storage = self._storages.setdefault(address(value), (len(self._storages), value.untyped_storage()))
        elements = storage.nbytes() // value.element_size()
        return View(number, elements, value.dtype, tuple(value.size()), value.stride(), int(value.storage_offset()))


def is_whole(tensor: Tensor) -> bool:
    """Whether `tensor` covers all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def address(tensor: Tensor) -> int:
    """Return an identifier of the tensor's storage."""
    return torch_private.storage_key(tensor)


class TensorRecipe:
    """The recorded operations of a model that have not been replayed yet, with the state of the random numbers at that point."""

    def __init__(self, model: nn.Module, recorder: OperationRecorder, random_state: Tensor) -> None:
        self._model, self._calls, self._random_state, self._done = model, recorder.calls, random_state, 0
        self._views = {id(tensor): recorder.known(tensor) for tensor in tensors_in([model])}
        self._kept = {view.storage for view in self._views.values()}
        self._flats: dict[int, Tensor] = {}  # the values of storages, as flat tensors
        self._touching: defaultdict[int, list[int]] = defaultdict(list)  # by storage, the indices of its calls
        for number, call in enumerate(self._calls):
            for storage in call.storages:
                self._touching[storage].append(number)

    def make(self, modules: Iterable[nn.Module]) -> None:
        """Replay what the parameters and buffers of `modules` need, and put them into the model."""
        missing = {id(tensor): tensor for tensor in tensors_in(modules) if tensor.is_meta}
        views = {identity: self._views[identity] for identity in missing}
        self._replay_until(max((self._touching[view.storage][-1] for view in views.values()), default=-1))
        made = {identity: like(tensor, self._actual(views[identity])) for identity, tensor in missing.items()}
        for module in self._model.modules():
            for name, tensor in (*own_parameters(module).items(), *own_buffers(module).items()):
                if id(tensor) in made:
                    setattr(module, name, made[id(tensor)])
        for view in views.values():
            self._flats.pop(view.storage, None)

    @torch.no_grad()
    def _replay_until(self, number: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random_state)
            for each in range(self._done, number + 1):
                self._replay(each)
            self._random_state = torch.get_rng_state()
        self._done = max(self._done, number + 1)

    def _replay(self, number: int) -> None:
        call = self._calls[number]
        positional, named = tree_map(self._actual, call.inputs)
        results = call.function(*positional, **named)
        for view, result in zip(tree_leaves(call.results), tree_leaves(results), strict=True):
            if isinstance(view, View):
                self._flats[view.storage] = result.as_strided((view.elements,), (1,), 0)
        for storage in call.storages:
            if self._is_dead(storage, number):
                self._flats.pop(storage, None)

    def _is_dead(self, storage: int, number: int) -> bool:
        """Whether the values of `storage` are not read again after call `number`."""
        numbers = self._touching[storage]
        after = bisect_right(numbers, number)
        return storage not in self._kept if after == len(numbers) else self._calls[numbers[after]].overwrites(storage)

    def _actual(self, value: Any) -> Any:
        if isinstance(value, View):
            flat = self._flats.setdefault(value.storage, torch.empty(value.elements, dtype=value.dtype))
            return flat.as_strided(value.size, value.stride, value.offset)
        return CPU if isinstance(value, torch.device) else value


def tensors_in(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Yield the parameters and buffers of `modules`."""
    for module in modules:
        yield from module.parameters()
        yield from module.buffers()


def like(tensor: Tensor, numbers: Tensor) -> Tensor:
    """Return `numbers` as a parameter if `tensor` is one."""
    return nn.Parameter(numbers, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else numbers
