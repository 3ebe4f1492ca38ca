"""Turns a desired rank into the spawner's order: its folder, its environment, its program."""

from __future__ import annotations

import platform
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from paceline.cluster.agent.account import ENTERED_BY_ALL, Account
from paceline.cluster.agent.environments.own_python import variables_of
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.ranks.rendezvous import RendezvousPoint, agree_on_rendezvous
from paceline.cluster.agent.spawner_link import Spawn
from paceline.cluster.protocol import Desired
from paceline.distributed.env import (
    ARTIFACTS_FOLDER,
    LOG_FOLDER,
    OWNERS_CHOICE,
    RANK_FOLDER,
    VIRTUAL_LOCAL_RANK,
    ScriptLaunch,
    path_with_commands_of,
    rank_environment,
    script_environment,
    visible_devices,
)
from paceline.monitoring.cards import listed
from paceline.monitoring.files import write_durably
from paceline.monitoring.samples import Gpu
from paceline.training.link import RankOrder, RankPlace, encode_order
from paceline.training.rank_folder import RankFolder
from paceline.training.schema.script import Script
from paceline.training.spec.stored import StoredSpec
from paceline.training.warm_start import acts_at_start


def order_for(world: RankPlace, spec: StoredSpec, folder: AgentFolder, checkpoints: Path, interface: str | None) -> RankOrder:
    """The order of a rank: the world completed with facts that only this node knows."""
    world = msgspec.structs.replace(
        world,
        interface=world.interface or interface,
        hostname=platform.node(),
        checkpoint_directory=world.checkpoint_directory or str(checkpoints / world.job_id),
    )
    rank_folder = RankFolder(folder.path, world.job_id, world.generation, world.rank)
    return RankOrder(spec=spec, world=world, folder=str(rank_folder.path), agent_socket=str(folder.agent_socket))


def keep(order: RankOrder, account: Account | None = None) -> None:
    """Write an order to disk before anything runs, so that the next agent knows of the rank. `account`: the user that the rank runs as,
    if not the agent's."""
    folder = RankFolder.at(Path(order.folder))
    folder.path.mkdir(parents=True, exist_ok=True)
    if account is not None:
        account.open_up(folder.path.parents[1], folder.path)
        account.own(folder.path)
    for shared in (folder.logs, *([folder.work] if starts_in_empty_work(order.spec) else [])):
        if not shared.exists():
            shared.mkdir()
            if account is not None:
                account.own(shared)
    write_durably(folder.order, encode_order(order), mode=0o600)  # the job's variables and its store's token


def make_artifacts_folder(order: RankOrder, account: Account | None = None) -> None:
    """Make the folder of a process that is about to start for files that are kept with the job."""
    folder = RankFolder.at(Path(order.folder)).files
    folder.mkdir(parents=True, exist_ok=True)
    if account is not None:
        folder.parent.chmod(ENTERED_BY_ALL)
        account.own(folder)


def starts_in_empty_work(spec: StoredSpec) -> bool:
    """Whether the ranks of a job start in the job's own folder on the node with nothing in it: those of a script without code and without
    a working directory."""
    return spec.is_script and all(spec.part("environment", name) is None for name in ("working_directory", "code"))


@dataclass(frozen=True)
class SlotCards:
    """The card behind each slot of this node; none where they are CPU slots."""

    cards: Sequence[Gpu]
    hides_cards: bool  # ranks on CPU slots must not see the cards that are here: others may offer them
    gone: Sequence[Gpu] = ()  # of `cards`, those that cannot be read any more

    def shown(self, world: RankPlace, slots: Sequence[int]) -> str | None:
        """The value of CUDA_VISIBLE_DEVICES that shows a rank of `world` the cards of these slots, in this order; None: as it is. By UUID:
        an index is another card for CUDA than for the driver where cards differ, or once one has failed. Raises NoCardError."""
        if world.device == "cpu":
            return "" if self.hides_cards else None
        missing = [slot for slot in slots if slot >= len(self.cards)]
        if missing:
            raise NoCardError(f"slot {missing[0]} is a GPU for the coordinator, and this node offers {len(self.cards)} of them now")
        shown = [self.cards[slot] for slot in slots]
        gone = [card for card in shown if card in self.gone]
        if gone:
            raise NoCardError(f"{listed(gone)} cannot be read any more: look at nvidia-smi")
        return ",".join(card.uuid for card in shown)


class NoCardError(Exception):
    """A slot without a usable card: the node offers other cards now, or has lost this one."""


async def prepare(
    order: RankOrder,
    cards: SlotCards,
    local_slots: Sequence[int],
    choose: Callable[[RankPlace, Script], Awaitable[RendezvousPoint]],
    secrets: Mapping[str, str] = MappingProxyType({}),
    inherited: Mapping[str, str] = MappingProxyType({}),
) -> Spawn:
    """Prepare the launch of a rank. `local_slots`: the slots of this generation's ranks on this node, by local rank. `choose`: decides the
    rendezvous of a script's ranks, if this node does. `secrets`: the job's, by variable; they are in the returned message alone, and in no file.
    `inherited`: what ranks get of the agent's own variables.

    A rank of the trainer sees its own card alone, a rank of a script those of all ranks beside it: as under torchrun, `LOCAL_RANK` is the
    index of its own, unless the script asks for `virtual_local_rank`. Raises UnreadableSpecError, NoCardError, or one of `distributed.errors`."""
    spec, world, folder = order.job_spec, order.world, RankFolder.at(Path(order.folder))
    variables = dict(spec.environment.variables) | dict(secrets)
    mark = {RANK_FOLDER: order.folder, LOG_FOLDER: str(folder.logs), ARTIFACTS_FOLDER: str(folder.files)}
    directory, python = order.working_directory, order.interpreter.python or sys.executable
    fresh = any(map(acts_at_start, variables)) or (bool(order.interpreter.python) and not order.interpreter.spawner)
    activated = {} if not order.interpreter.python else variables_of(Path(python))
    if (script := spec.script) is None:
        own = cards.shown(world, [world.slot])
        environment = (path_of(order) if activated else {}) | activated | variables | mark
        return Spawn(order=order, environment=environment, fresh=fresh, working_directory=directory, visible_devices=own)
    point = await agree_on_rendezvous(world, partial(choose, world, script))
    known = ScriptLaunch(
        run_id=world.job_id,
        max_restarts=spec.fault_tolerance.max_restarts,
        master_port=point.port,
        store_is_served=point.served,
        error_file=folder.error,
        interface=world.interface,
    )
    owners = {name: value for name, value in inherited.items() if name in OWNERS_CHOICE}
    environment = path_of(order) | activated | script_environment(world, known) | owners | variables | rank_environment(world) | mark
    shown = cards.shown(world, [world.slot] if script.virtual_local_rank else local_slots)
    environment |= ({} if shown is None else visible_devices(shown)) | (VIRTUAL_LOCAL_RANK if script.virtual_local_rank else {})
    fresh = fresh or script.command is not None
    program = script.program(python if spec.environment.image is None else "python")
    return Spawn(order=order, environment=environment, program=program, fresh=fresh, working_directory=directory or str(folder.work))


def path_of(order: RankOrder) -> dict[str, str]:
    """The PATH of a rank: its interpreter's commands, then those of the node where the node's packages stand behind the interpreter's own."""
    wanted, own = order.job_spec.environment, order.interpreter.python
    stands_alone = wanted.own_torch or (order.spec.is_script and wanted.python is not None)
    return path_with_commands_of(*([own] if own else []), *([] if stands_alone else [sys.executable]))


def local_slots(world: RankPlace, desired: Desired) -> tuple[int, ...]:
    """The slots behind local ranks 0, 1, ... of a generation on this node."""
    everyone = [other for assignment in desired.assignments for other in assignment.worlds]
    same = [other for other in everyone if (other.job_id, other.generation) == (world.job_id, world.generation)]
    return tuple(other.slot for other in sorted(same, key=lambda other: other.local_rank))
