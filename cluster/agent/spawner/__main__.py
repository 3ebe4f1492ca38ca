"""The command line of a spawner: `python -m paceline.cluster.agent.spawner --data DIR`."""

from __future__ import annotations

import argparse
import gc
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from paceline.cluster.agent.account import find_account
from paceline.cluster.agent.card_locks import inherit
from paceline.cluster.agent.folders import AgentFolder, listen, lock
from paceline.cluster.agent.memory_groups import MemoryGroups
from paceline.cluster.agent.processes import PR_SET_CHILD_SUBREAPER, prctl
from paceline.cluster.agent.spawner.log import write_line
from paceline.cluster.agent.spawner.loop import Spawner
from paceline.cluster.agent.spawner.rank_process import ProcessLimits, TrainerModule
from paceline.cluster.agent.spawner_link import DEFAULT_ORPHAN_SECONDS, DEFAULT_TRAINER


def load_trainer(module: str) -> TrainerModule:
    gc.disable()  # what is imported stays; looking through it again and again takes a tenth of the time, and once at the end another one
    trainer = cast(TrainerModule, importlib.import_module(module))
    trainer.preload()
    gc.freeze()  # keeps the collector of each rank from touching, and so copying, the pages it shares with us
    gc.enable()
    return trainer


def _descriptors(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="paceline.cluster.agent.spawner", description="Fork and reap the ranks of one node.")
    parser.add_argument("--data", type=Path, required=True, help="the agent's data folder")
    parser.add_argument("--trainer", default=DEFAULT_TRAINER, help="module with preload() and run_rank(order)")
    parser.add_argument("--orphan-seconds", type=float, default=DEFAULT_ORPHAN_SECONDS, help="how long to live without an agent")
    parser.add_argument("--name", help="the node's, told to agents that want a card of this one")
    parser.add_argument("--environment", default="", help="the packages that it has, by name; default: the agent's")
    parser.add_argument("--card-locks", type=_descriptors, default=(), help="inherited descriptors, one for each card that the node offers")
    parser.add_argument("--run-as", metavar="USER", help="whom ranks run as")
    parser.add_argument("--memory-limit", type=int, help="bytes, of each rank")
    parser.add_argument("--memory-groups", type=Path, help="the control group below which each rank gets its own")
    parser.add_argument(
        "--shielded", action="store_true", help="leave SIGTERM to the agent: it ends neither this process nor the trainer's ranks"
    )
    parser.add_argument("--rank-umask", type=lambda text: int(text, 8), default=0o022, help="octal; of what ranks create")
    options = parser.parse_args(arguments)
    if options.environment and options.run_as is not None:
        parser.error("--environment with --run-as: a job's packages would run as root in here before any rank is forked")
    folder = AgentFolder(options.data)
    place = folder.spawner(options.environment)
    held = lock(place.lock)
    if held is None:
        write_line(f"another spawner serves {folder.path}")
        return 0
    account = None if options.run_as is None else find_account(options.run_as)
    limits = ProcessLimits(umask=options.rank_umask, tag=0, account=account, group=None, shielded=options.shielded)
    groups = MemoryGroups(options.memory_groups, options.memory_limit) if options.memory_groups and options.memory_limit else None
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a rank leaves behind becomes our child, not init's
    card_locks = inherit(options.card_locks)
    listener = listen(place.socket)
    Spawner(listener, load_trainer(options.trainer), options.orphan_seconds, limits, groups, card_locks).run()
    place.socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
