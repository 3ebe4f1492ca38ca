"""A model that is written down before it is built, so that one which will be cut is never whole anywhere.

Its code runs on the meta device, where tensors have shapes and no numbers, while each operation is noted (the idea is that of
deferred_init in pytorch/torchdistx). Done again in that order, on one tensor after another, the same random numbers fall into the same places:
the bits are those of a model built at once. What a later operation overwrites is drawn and dropped; what nobody has asked for yet is kept.

Tensors are told apart by their storages. A model whose code reads numbers, or brings some from elsewhere, cannot be written down.
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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

#: How a model comes to be: at once, or deferred.
Build = Callable[[Callable[[], nn.Module]], nn.Module]
at_once: Build = operator.call

aten = torch.ops.aten
#: They leave nothing of what was there.
FILLS = frozenset({aten.normal_.default, aten.uniform_.default, aten.fill_.Scalar, aten.zero_.default})
CPU = torch.device("cpu")
RECIPE = "_recipe"


class NotDeferrableError(RuntimeError):
    """A model whose code does more than to create tensors and to compute with them."""


def defer(build: Callable[[], nn.Module]) -> nn.Module:
    """The model without its numbers; `materialize` makes them. Raises NotDeferrableError."""
    notes, random_state = Notes(), torch.get_rng_state()
    with torch.device("meta"), notes:
        model = build()
    vars(model)[RECIPE] = Recipe(model, notes, random_state)
    return model


def materialize(model: nn.Module, modules: Iterable[nn.Module]) -> None:
    """On the host, the parameters and buffers of these parts of `model`; nothing where it was built at once."""
    recipe: Recipe | None = vars(model).get(RECIPE)
    if recipe is not None:
        recipe.make(modules)


@dataclass(frozen=True)
class View:
    """A tensor: in which storage, and what part of it."""

    storage: int
    elements: int  # of the storage
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Call:
    """One operation, with views in the place of tensors."""

    function: Any
    inputs: tuple[tuple[Any, ...], dict[str, Any]]
    results: Any

    @cached_property
    def storages(self) -> set[int]:
        return {leaf.storage for leaf in tree_leaves((self.inputs, self.results)) if isinstance(leaf, View)}

    def overwrites(self, storage: int) -> bool:
        """All of its numbers, without looking at them."""
        target = self.inputs[0][0] if self.function in FILLS else None
        return isinstance(target, View) and target.storage == storage and torch.Size(target.size).numel() == target.elements


class Notes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Of what is done to tensors while this mode is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self._storages: dict[int, tuple[int, torch.UntypedStorage]] = {}  # kept, or an address could come again

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        named = kwargs or {}
        inputs = tree_map(self._noted if function in FILLS and is_whole(args[0]) else self.known, (args, named))
        results = function(*args, **named)
        if not function.is_view:
            self.calls.append(Call(function, inputs, tree_map(self._noted, results)))
        return results

    def known(self, value: Any) -> Any:
        """The view of a tensor that the notes tell how to make; what is no tensor stays what it is."""
        if isinstance(value, Tensor) and address(value) not in self._storages:
            raise NotDeferrableError(
                f"a tensor of shape {tuple(value.shape)} on {value.device} comes from elsewhere; build the model at once"
            )
        return self._noted(value)

    def _noted(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        number, storage = self._storages.setdefault(address(value), (len(self._storages), value.untyped_storage()))
        elements = storage.nbytes() // value.element_size()
        return View(number, elements, value.dtype, tuple(value.size()), value.stride(), int(value.storage_offset()))


def is_whole(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class Recipe:
    """What is left to do to a model that was written down, with the random numbers that building it at once would have drawn."""

    def __init__(self, model: nn.Module, notes: Notes, random_state: Tensor) -> None:
        self._model, self._calls, self._random_state, self._done = model, notes.calls, random_state, 0
        self._views = {id(tensor): notes.known(tensor) for tensor in tensors_in([model])}
        self._kept = {view.storage for view in self._views.values()}
        self._flats: dict[int, Tensor] = {}  # storages that have their numbers
        self._touching: defaultdict[int, list[int]] = defaultdict(list)  # the numbers of the calls, by storage
        for number, call in enumerate(self._calls):
            for storage in call.storages:
                self._touching[storage].append(number)

    def make(self, modules: Iterable[nn.Module]) -> None:
        missing = {id(tensor): tensor for tensor in tensors_in(modules) if tensor.is_meta}
        views = {identity: self._views[identity] for identity in missing}
        self._go_on_to(max((self._touching[view.storage][-1] for view in views.values()), default=-1))
        made = {identity: like(tensor, self._actual(views[identity])) for identity, tensor in missing.items()}
        for module in self._model.modules():
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if id(tensor) in made:
                    setattr(module, name, made[id(tensor)])
        for view in views.values():
            self._flats.pop(view.storage, None)

    @torch.no_grad()
    def _go_on_to(self, number: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random_state)
            for each in range(self._done, number + 1):
                self._do(each)
            self._random_state = torch.get_rng_state()
        self._done = max(self._done, number + 1)

    def _do(self, number: int) -> None:
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
        """Nobody will look at it after call `number` as it is now."""
        numbers = self._touching[storage]
        after = bisect_right(numbers, number)
        return storage not in self._kept if after == len(numbers) else self._calls[numbers[after]].overwrites(storage)

    def _actual(self, value: Any) -> Any:
        if isinstance(value, View):
            flat = self._flats.setdefault(value.storage, torch.empty(value.elements, dtype=value.dtype))
            return flat.as_strided(value.size, value.stride, value.offset)
        return CPU if isinstance(value, torch.device) else value


def tensors_in(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    for module in modules:
        yield from module.parameters()
        yield from module.buffers()


def like(tensor: Tensor, numbers: Tensor) -> Tensor:
    return nn.Parameter(numbers, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else numbers
