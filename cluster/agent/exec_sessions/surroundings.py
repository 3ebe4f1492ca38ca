"""What a command finds beside a rank: the rank's variables and directory, so that `python` there is the rank's `python`.

Two of the rank's variables are left out, because what a command wrote there would be taken for the rank's own: the folder of its records and the
file of its exception. A command has `PACELINE_EXEC_SESSION` instead, by which an agent finds what a killed keeper has left.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.confinement import inherited_environment
from paceline.cluster.agent.processes import AGENT_DATA_VARIABLE
from paceline.cluster.agent.ranks.launch import SlotCards, path_of
from paceline.cluster.agent.spawner_link import Spawn
from paceline.distributed.env import LOG_FOLDER, RANK_FOLDER, rank_environment, visible_devices
from paceline.monitoring.files import read_file
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder

SESSION_VARIABLE = "PACELINE_EXEC_SESSION"
MOST_LAUNCH_BYTES = 1 << 20
_OF_THE_RANK_ALONE = frozenset({RANK_FOLDER, "TORCHELASTIC_ERROR_FILE"})


class ProcessSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The variables and the directory of a rank's process."""

    environment: dict[str, str]
    directory: str


_decoder = msgspec.json.Decoder(ProcessSurroundings)


def remember(spawn: Spawn) -> None:
    """Note what a script is started with, for commands beside it: an agent that comes later could not find out the port of its rendezvous. Called
    before the script runs, so that nothing in the folder is the script's yet. Raises OSError."""
    if not spawn.program:
        return  # of a rank of the trainer all of it stands in its order
    secrets = spawn.order.spec.part("environment", "secrets") or ()
    environment = {name: value for name, value in spawn.environment.items() if name not in secrets}  # which are in no file
    known = ProcessSurroundings(environment=environment, directory=spawn.working_directory or spawn.order.folder)
    path = RankFolder.at(Path(spawn.order.folder)).launch
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(msgspec.json.encode(known))


def surroundings_of(order: RankOrder, cards: SlotCards) -> ProcessSurroundings:
    """The surroundings of a living rank. Raises OSError or msgspec.DecodeError where those of a script cannot be read, NoCardError where its
    card is gone, and UnreadableSpecError."""
    folder = RankFolder.at(Path(order.folder))
    if order.spec.is_script:
        return _decoder.decode(read_file(folder.launch, MOST_LAUNCH_BYTES, owner=os.geteuid()))
    wanted = order.job_spec.environment
    shown = cards.shown(order.world, [order.world.slot])
    interface = order.world.interface
    return ProcessSurroundings(
        environment=path_of(order)
        | ({} if interface is None else {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface})
        | dict(wanted.variables)
        | rank_environment(order.world)
        | {LOG_FOLDER: str(folder.logs)}
        | ({} if shown is None else visible_devices(shown)),
        directory=wanted.working_directory or order.folder,
    )


def environment_of(
    known: ProcessSurroundings,
    agent: Mapping[str, str],
    also: tuple[str, ...],
    session_id: str,
    agent_data: Path,
    account: Account | None,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """All variables of a command. `agent`: the agent's own variables, of which the command gets those that ranks get, with `also`. `secrets`: the job's:
    whoever may run a command as the rank's user can read them from the rank's process anyway."""
    base = inherited_environment(agent, also) | {AGENT_DATA_VARIABLE: str(agent_data)}
    base = base if account is None else account.environment(base)
    kept = {name: value for name, value in known.environment.items() if name not in _OF_THE_RANK_ALONE}
    return base | kept | dict(secrets) | {SESSION_VARIABLE: session_id}
