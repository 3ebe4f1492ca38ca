"""Whether `paceline run` finds a coordinator, and what keeps a launch from running where it was typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from paceline.cli.errors import UnreachableError, UsageProblem
from paceline.cli.job_folder import near_names
from paceline.cli.launch.arguments import Launch
from paceline.cli.render.output import note
from paceline.cli.session import Session
from paceline.cli.settings import LOOPBACK
from paceline.monitoring.cards import listed
from paceline.monitoring.samples import Gpu

_OF_A_SHELL = (".sh", ".bash", ".zsh")
_PYTHONS = ("python", "python3")
_SEVERAL_NODES = (
    "start one with 'paceline up', join each machine with 'paceline worker' and a token of its own, and name it with --server;"
    " the batch script that does so in a Slurm job: docs/scripts.md, 'In a Slurm job'"
)


def coordinator_answers(session: Session) -> bool:
    """Whether there is a coordinator to submit to; False: none is configured, or this machine's own stack is down.

    Raises UnreachableError where one was named on purpose, or is another machine's: the job was meant to run there, not here."""
    settings = session.settings
    if not settings.name_a_coordinator:
        return False
    with session.client() as client:
        try:
            client.get("/auth/me")
        except UnreachableError as error:
            if settings.name_it_here_and_now or urlsplit(settings.url).hostname not in LOOPBACK:
                raise UnreachableError(error.message, "to train on this machine alone: paceline run --private ...") from error
            note(f"note: {settings.url} (from {settings.server.source}) does not answer")
            return False
    return True


def require_program(launch: Launch, folder: Path) -> None:
    """Refuse a script that is not there, or that Python cannot run. `folder` is where it was typed."""
    if launch.form != "path":
        return
    if PurePath(launch.target).suffix in _OF_A_SHELL:
        raise UsageProblem(f"{launch.target} is no Python script", f"write --no-python bash {launch.target}")
    if not (folder / launch.target).exists():
        if launch.target in _PYTHONS:
            raise UsageProblem(f"{launch.target} is no script", f"leave out {launch.target}: scripts are run by Python anyway")
        near = near_names(folder / launch.target)
        raise UsageProblem(
            f"there is no script {launch.target}, seen from {folder}" + (f"; there is {', '.join(near)}" if near else ""),
            "one that only the nodes have: paceline submit, with script.path; a module: -m",
        )


def require_one_call(launch: Launch, variables: Mapping[str, str]) -> None:
    """Refuse to launch the same nodes a second time, from the second task of a Slurm step."""
    task = variables.get("SLURM_PROCID", "0")
    if launch.nodes > 1 and task not in ("", "0"):
        raise UsageProblem(
            f"this is task {task} of a Slurm step, and 'paceline run' starts the ranks of all {launch.nodes} nodes",
            "type it once, without srun",
        )


def require_one_machine(launch: Launch, variables: Mapping[str, str]) -> None:
    """Refuse what a private coordinator on this machine cannot do."""
    nodes = variables.get("SLURM_NNODES", "1")
    if launch.fewest_nodes > 1:
        slurm = f" (this Slurm job has {nodes} nodes)" if nodes != "1" else ""
        raise UsageProblem(f"--nnodes {launch.fewest_nodes} needs a coordinator, and there is none{slurm}", _SEVERAL_NODES)
    if launch.log_files:
        raise UsageProblem(
            f"{', '.join(launch.log_files)}: a run without a coordinator that stays leaves no log files behind",
            "leave it out and keep the output with: paceline run ... 2>&1 | tee FILE; or start a coordinator that stays: paceline up",
        )
    if nodes != "1":
        note(f"note: this Slurm job has {nodes} nodes; this run uses one of them")


def require_enough_gpus(ranks: int | str, cards: Sequence[Gpu]) -> None:
    """Refuse more ranks than this machine, without a coordinator that stays, has GPUs for. `cards`: those that may be used; without any
    the ranks run on CPUs."""
    if cards and isinstance(ranks, int) and ranks > len(cards):
        raise UsageProblem(
            f"--nproc-per-node {ranks}: a rank gets a whole GPU, and this machine offers {len(cards)}: {listed(cards)}",
            f"ask for {len(cards)} or fewer; to run on CPUs: CUDA_VISIBLE_DEVICES= paceline run ...",
        )
