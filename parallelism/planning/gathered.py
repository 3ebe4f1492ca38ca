"""The parameters and gradients that a rank of a sharded model keeps whole while it computes. Pure; see torch's `fully_shard` (FSDP2).

Blocks are gathered unit by unit: in backward the current unit and, prefetched, the one before it. Layers in no unit (embedding, head,
blocks too few for a unit) stay whole from forward to the end of backward. Gradients are whole until their unit is done; the copy that the
reduce-scatter sends lives until the next unit's, and the buffer of the forward's last gather until the model returns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from paceline.parallelism.model_shape import MASTER_BYTES, Layer


@dataclass(frozen=True)
class GatheredParameters:
    """Bytes of whole parameters and gradients that FSDP holds at the moments of a step."""

    layers: Sequence[Layer]
    units: Sequence[Collection[int]]  # indices of layers
    element: int  # bytes of a gathered element and of its gradient
    reshard_after_forward: bool

    def after_forward(self) -> int:
        """Return the bytes between forward and backward."""
        whole = range(len(self.layers)) if not self.reshard_after_forward else self._rest
        return self.element * self._parameters(whole)

    def at_outputs(self) -> int:
        """Return the bytes when the model returns: the buffer of its last gather is held until then."""
        last = self.units[-1] if self.units else self._rest
        return self.after_forward() + self.element * self._parameters(last)

    def in_backward(self, index: int) -> int:
        """Return the bytes while the backward of layer `index` runs."""
        number = self._unit_of.get(index)
        whole = [*self._rest, *self._whole_units(index, number)]
        fresh = [each for each in self._rest if each >= index] + [each for each in self._unit(number) if each >= index]
        sent = self._unit(None if number is None else number + 1)
        return self.element * (self._parameters(whole) + self._parameters(fresh)) + MASTER_BYTES * self._parameters(sent)

    def at_the_end(self) -> int:
        """Return the bytes at the end of backward: gradients of layers in no unit, and the copy that is sent."""
        return (self.element + MASTER_BYTES) * self._parameters(self._rest)

    @property
    def last_sent(self) -> int:
        """Elements of the gradients that are sent at the end of backward."""
        return self._parameters(self._rest)

    def in_last_exchange(self, ranks: int) -> int:
        """Return the bytes of the copy that is sent and, on a CPU, of what the other ranks send.

        The sum of both is this rank's shard of the gradient, which is counted elsewhere.
        """
        return MASTER_BYTES * (self.last_sent + self.last_sent * (ranks - 1) // ranks)

    @cached_property
    def _unit_of(self) -> dict[int, int]:
        return {index: number for number, unit in enumerate(self.units) for index in unit}

    @cached_property
    def _rest(self) -> list[int]:
        return [index for index in range(len(self.layers)) if index not in self._unit_of]

    def _whole_units(self, index: int, number: int | None) -> list[int]:
        if not self.reshard_after_forward:
            return [each for unit in self.units for each in unit if min(unit) <= index]
        return [] if number is None else [*self._unit(number), *self._unit(number - 1)]

    def _unit(self, number: int | None) -> Collection[int]:
        return self.units[number] if number is not None and 0 <= number < len(self.units) else ()

    def _parameters(self, indices: Collection[int]) -> int:
        return sum(self.layers[index].parameters for index in indices)


def units_of(layers: Sequence[Layer], least: int) -> list[list[int]]:
    """Return the units of a model as lists of layer indices: runs of blocks with at least `least` parameters; left-over blocks are in
    none.
    """
    units: list[list[int]] = []
    run: list[int] = []
    for index, layer in enumerate(layers):
        if not layer.is_block:
            continue
        run.append(index)
        if sum(layers[each].parameters for each in run) >= least:
            units.append(run)
            run = []
    return units
