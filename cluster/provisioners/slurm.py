"""Nodes of a Slurm cluster: each is a job that runs an agent, which drains itself before Slurm takes its machine away.

Slurm's own commands are run on the coordinator's machine, by the user that the coordinator runs as. All nodes are looked at by one `squeue`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch, WantedNode
from paceline.cluster.provisioners.slurm_script import batch_script, sbatch_options
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from paceline.cluster.provisioners.slurm_states import phase_of, state_in_words

COMMAND_SECONDS = 25.0
#: Job id, state, expected start, comment, name, reason: the reason last, since it may hold anything.
FORMAT = "%A|%T|%S|%k|%j|%r"
LOST_MESSAGES = ("invalid job id", "already completed", "job/step already completing")
REMEDIES = {
    "invalid account": "ask for an account that `sacctmgr show associations` lists for the coordinator's user, in the pool's `account`",
    "invalid partition": "name a partition that `sinfo` lists, in the pool's `partition`",
    "invalid qos": "name a quality of service that `sacctmgr show qos` lists, in the pool's `qos`",
    "node configuration is not available": "no machine of the partition has that much: ask for fewer GPUs, CPUs or less memory in the pool",
    "invalid generic resource": "name resources as `sinfo -o %G` shows them, in the pool's `gres`",
    "time limit": "ask for less time in the pool's `time`; `sinfo -o '%P %l'` shows the limits",
    "unable to contact slurm controller": "look at slurmctld, and at SLURM_CONF of the coordinator",
    "configuration source": "set SLURM_CONF for the coordinator, or put slurm.conf into /etc/slurm",
    "policy": "the limits of the account or the quality of service are reached: `sacctmgr show qos`, `squeue --me`",
}


@dataclass(frozen=True)
class _Job:
    id: str
    state: str
    start: str
    comment: str
    name: str
    reason: str


class SlurmProvisioner:
    """Submits a job for each node, and keeps no state: the handle is the id of the job."""

    def __init__(self, settings: SlurmSettings, context: ProvisionerContext) -> None:
        self._settings = settings

    async def launch(self, request: WantedNode) -> str:
        """Submit the job, unless one of this name is queued or runs already. Returns its id."""
        comment = f"paceline {request.server}"
        for job in await self._jobs():
            if (job.name, job.comment) == (request.name, comment) and phase_of(job.state) is not LaunchPhase.ENDED:
                return job.id
        command = ["sbatch", *sbatch_options(self._settings, request, comment), "--output=/dev/null"]
        script = batch_script(self._settings, request)
        output = await _run(command, script, {"PACELINE_JOIN_TOKEN": request.join_token})
        number = output.strip().partition(";")[0]
        if not number.isdecimal():
            raise ProvisionerError(
                f"sbatch answered {output[:200]!r} and no job id", "look whether sbatch is wrapped by a script of the site"
            )
        return number

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        """Look at the jobs, all with one call."""
        if not handles:
            return {}
        jobs = {job.id: job for job in await self._jobs()}
        gone = SeenLaunch(LaunchPhase.ENDED, "Slurm does not know its job any more")
        return {handle: _launch(jobs[handle]) if handle in jobs else gone for handle in handles}

    async def terminate(self, handle: str) -> None:
        """Cancel the job. If it runs its agent gets SIGTERM, which is a drain for as long as KillWait lasts."""
        if not handle.isdecimal():
            return  # no job of Slurm's
        try:
            await _run(["scancel", handle])
        except ProvisionerError as error:
            if not any(each in str(error).lower() for each in LOST_MESSAGES):
                raise

    async def _jobs(self) -> list[_Job]:
        """The jobs of the coordinator's user, those that ended a short while ago included."""
        output = await _run(["squeue", "--noheader", "--me", "--states=all", f"--format={FORMAT}"])
        rows = (line.strip().split("|", 5) for line in output.splitlines())
        return [_Job(*row) for row in rows if len(row) == 6]


def _launch(job: _Job) -> SeenLaunch:
    phase = phase_of(job.state)
    start = _time(job.start) if phase is LaunchPhase.PENDING else None
    return SeenLaunch(phase, state_in_words(job.state, job.reason, start))


def _time(text: str) -> datetime | None:
    """A time of squeue's, which was asked for in UTC; None: it says N/A or NONE."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    return None


async def _run(command: Sequence[str], text: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Run one of Slurm's commands. Returns its output. Raises ProvisionerError with what it wrote."""
    environment = {**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C", **(variables or {})}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise ProvisionerError(
            f"{command[0]} cannot be started on the coordinator's machine: {error.strerror}",
            "install Slurm's client commands there (Debian: slurm-client), or put their folder on the coordinator's PATH",
            nothing_began=True,
        ) from error
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, errors = await process.communicate(text.encode())
    except TimeoutError:
        raise ProvisionerError(
            f"{command[0]} has not answered within {COMMAND_SECONDS:g} s", "look at slurmctld: `scontrol ping`"
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise _refusal(command[0], process.returncode, errors.decode(errors="replace"))
    return output.decode(errors="replace")


def _refusal(program: str, code: int | None, errors: str) -> ProvisionerError:
    lines = [line.strip().removeprefix(f"{program}: ").removeprefix("error: ") for line in errors.splitlines() if line.strip()]
    said = "; ".join(lines[-2:])[:500] or f"exit code {code}"
    remedy = next(
        (way for text, way in REMEDIES.items() if text in errors.lower()), f"try `{program}` on the coordinator's machine, as its user"
    )
    return ProvisionerError(f"{program} refused: {said}", remedy)
