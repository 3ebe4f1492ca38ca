"""What happens to a stack that is soaked: jobs of all kinds, people who look and change their minds, and faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.cli.api_types import Job
from paceline.cli.client import RestClient
from paceline.cli.errors import ApiProblemError
from paceline.cli.job_facts import has_ended
from paceline.cli.local.processes import find, recorded
from paceline.cli.local.programs import COORDINATOR
from scripts.faults import strikes
from scripts.faults.rig import Rig
from scripts.steps import ROOT

#: No more than this many jobs of the load are open at once.
MOST_OPEN = 6
KILL_TIMEOUT_SECONDS = 20.0
TRICKS = ROOT / "tests" / "hostile" / "user_code" / "tricks.py"
#: Some of the tricks that harm: those that leave much behind.
PLAYED = (
    "output_flood",
    "points_flood",
    "names_by_the_thousand",
    "folder_of_many_files",
    "ends_by_itself",
    "step_fraction",
    "twenty_children",
)
GPT = {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 64}


@dataclass
class Scene:
    rig: Rig
    resident: str  # the job that lives through all of it
    members: int  # its ranks
    draw: random.Random
    opened: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)  # how often each act was played
    refused: dict[str, int] = field(default_factory=dict)  # answers to acts that came too late, by their code

    @property
    def client(self) -> RestClient:
        return self.rig.client

    def play(self, act: Act) -> None:
        self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
        try:
            act(self)
        except ApiProblemError as problem:  # the job has ended or changed in the meantime
            if problem.status >= 500:
                raise
            self.refused[problem.code] = self.refused.get(problem.code, 0) + 1

    def open_jobs(self) -> list[str]:
        self.opened = [job_id for job_id in self.opened if not has_ended(self.client.job(job_id))]
        return self.opened

    def cancel_all(self) -> None:
        """Cancel what is open, once nothing more is played."""
        while self.open_jobs():
            self.play(cancel)

    def submit(self, spec: dict[str, Any]) -> None:
        if len(self.open_jobs()) < MOST_OPEN:
            self.opened.append(str(self.client.create("/training/jobs", spec)["id"]))


Act = Callable[[Scene], None]


def train(scene: Scene) -> None:
    steps = scene.draw.randrange(20, 200)
    training = {"steps": steps, "global_batch_size": 8, "eval_every_steps": None}
    scene.submit({"name": "load", "model": GPT, "data": {"kind": "stdlib_text"}, "training": training, "checkpoint": {"every_steps": 20}})


def harm(scene: Scene) -> None:
    script = {"path": str(TRICKS), "args": [scene.draw.choice(PLAYED)]}
    environment = {"working_directory": str(ROOT)}
    scene.submit({"name": "harm", "script": script, "environment": environment, "fault_tolerance": {"max_restarts": 1}})


def cancel(scene: Scene) -> None:
    if jobs := scene.open_jobs():
        job_id = scene.draw.choice(jobs)
        scene.client.delete(f"/training/jobs/{job_id}", scene.client.job(job_id).revision)


def pause_and_resume(scene: Scene) -> None:
    for job_id in scene.open_jobs():
        job = scene.client.job(job_id)
        scene.client.put(f"/training/jobs/{job_id}/{'resume' if job.state == 'paused' else 'pause'}", job.revision)


def look(scene: Scene) -> None:
    """Read what a dashboard page reads."""
    for path in ("", "/events", "/incidents", "/samples", "/goodput", "/logs"):
        scene.client.get(f"/training/jobs/{scene.resident}{path}")
    scene.client.get(f"/metrics/jobs/{scene.resident}", names="loss,gradient_norm")
    scene.client.get("/metrics/cluster/summary")


def kill_rank(scene: Scene) -> None:
    """While the resident job is whole: the only rank that has its state cannot be replaced without a restart, which the job may not make."""
    victims = spare_ranks(scene.client.job(scene.resident), scene.members)
    if victims and _is_ours(pid := scene.draw.choice(victims), scene.rig.layout.data):
        strikes.kill_rank(pid)


def spare_ranks(job: Job, members: int) -> list[int]:
    """Return the processes of a job's ranks, any one of which may die, by their pids; none while fewer than `members` are at work."""
    pids = [rank.pid for rank in job.ranks if rank.pid is not None and rank.state == "running" and not rank.parked]
    return pids if job.state == "running" and len(pids) >= members else []


def kill_agent(scene: Scene) -> None:
    """Always the last one: the others are measured over the whole time."""
    strikes.kill_agent(scene.rig.layout, scene.rig.plan.agent_names[-1])
    scene.rig.heal()


def kill_coordinator(scene: Scene) -> None:
    for record in recorded(scene.rig.layout):
        if record.name == COORDINATOR and (process := find(record)) is not None:
            process.kill()
            process.wait(KILL_TIMEOUT_SECONDS)
    scene.rig.heal()


def _is_ours(pid: int, data: Path) -> bool:
    """The process may have ended since, and its number be another's."""
    try:
        return str(data) in Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return False


#: By weight. What replaces the processes that are measured happens in the warm-up alone.
LOAD: dict[Act, int] = {train: 6, harm: 3, cancel: 2, pause_and_resume: 2, look: 6, kill_rank: 2, kill_agent: 1}
UPHEAVAL: dict[Act, int] = LOAD | {kill_coordinator: 1}


def drawn(scene: Scene, acts: dict[Act, int]) -> Act:
    return scene.draw.choices(list(acts), weights=list(acts.values()))[0]
