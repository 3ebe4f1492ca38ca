"""Find the repeated blocks of a plain model by its structure: they are sharded, compiled and recomputed one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torch import nn


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the members of the outermost ModuleLists, in order, or those of the largest Sequential if there is no ModuleList.

    Members without parameters are left out, and a member that is used several times is there once.
    """
    members = list(members_of_lists(model)) or members_of_largest_sequential(model)
    return list(dict.fromkeys(member for member in members if parameters_in(member)))


def members_of_lists(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the members of the outermost ModuleLists in `module`."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from members_of(child)
        else:
            yield from members_of_lists(child)


def members_of(listed: nn.ModuleList) -> Iterator[nn.Module]:
    """Yield the members of a ModuleList, and of ModuleLists in it, which have no forward of their own."""
    for member in listed:
        if isinstance(member, nn.ModuleList):
            yield from members_of(member)
        else:
            yield member


def members_of_largest_sequential(model: nn.Module) -> list[nn.Module]:
    sequentials = [module for module in model.modules() if isinstance(module, nn.Sequential)]
    return list(max(sequentials, key=parameters_in, default=()))


def parameters_in(module: nn.Module) -> int:
    """Return the number of elements of all parameters in `module`."""
    return sum(parameter.numel() for parameter in module.parameters())


def self_contained(blocks: Iterable[nn.Module], model: nn.Module) -> list[nn.Module]:
    """Return the blocks that share no parameter with anything outside of them in `model`, as layers with tied weights do."""
    names = Counter(parameter for _, parameter in model.named_parameters(remove_duplicate=False))
    places = Counter(module for _, module in model.named_modules(remove_duplicate=False))

    def owns_all(block: nn.Module) -> bool:
        inside = Counter(parameter for _, parameter in block.named_parameters(remove_duplicate=False))
        return all(names[parameter] == places[block] * count for parameter, count in inside.items())

    return [block for block in blocks if owns_all(block)]


def units(blocks: Iterable[nn.Module], least: int) -> list[list[nn.Module]]:
    """Group successive blocks into units of at least `least` parameters each. Blocks left over at the end belong to no unit."""
    found: list[list[nn.Module]] = []
    run: list[nn.Module] = []
    for block in blocks:
        run.append(block)
        if sum(map(parameters_in, run)) >= least:
            found.append(run)
            run = []
    return found
