"""The repeated parts of a plain model, found by how it is built: what is sharded, and computed again, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Members of the outermost ModuleLists, in order; of a model without any, those of its largest Sequential. Only what has parameters."""
    members = list(members_of_lists(model)) or members_of_largest_sequential(model)
    return [member for member in members if parameters_in(member)]


def members_of_lists(module: nn.Module) -> Iterator[nn.Module]:
    """A list that is a member of a list is looked into: it has no forward of its own."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from members_of(child)
        else:
            yield from members_of_lists(child)


def members_of(listed: nn.ModuleList) -> Iterator[nn.Module]:
    for member in listed:
        if isinstance(member, nn.ModuleList):
            yield from members_of(member)
        else:
            yield member


def members_of_largest_sequential(model: nn.Module) -> list[nn.Module]:
    sequentials = [module for module in model.modules() if isinstance(module, nn.Sequential)]
    return list(max(sequentials, key=parameters_in, default=()))


def parameters_in(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def units(blocks: Iterable[nn.Module], least: int) -> list[list[nn.Module]]:
    """Runs of blocks with at least `least` parameters each. What is left over at the end belongs to none."""
    found: list[list[nn.Module]] = []
    run: list[nn.Module] = []
    for block in blocks:
        run.append(block)
        if sum(map(parameters_in, run)) >= least:
            found.append(run)
            run = []
    return found
