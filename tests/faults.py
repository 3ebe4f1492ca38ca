"""Faults by (rank, step, moment), never by sleeping: a task whose chosen rank dies in the middle of the chosen step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

#: When in the step: fetching data, computing the loss, going back, or with every gradient summed, just before the update.
Moment = Literal["data", "loss", "backward", "update"]

SOURCE = '''
"""A small network on made-up numbers that kills, stops or breaks itself where faults.json says so; once each, a file remembers."""
import json, os, pathlib, signal
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from training.data.sampler import Sampler
from training.task import Task

FOLDER = pathlib.Path(__file__).parent
BORN = int(os.environ["RANK"])
SAMPLES, WIDTH = 512, 32
FAULTS = [fault for fault in json.loads((FOLDER / "faults.json").read_text()) if fault["rank"] == BORN]
steps, now = {}, {"step": 0}

def strike(moment):
    for fault in FAULTS:
        done = FOLDER / f"fault.{fault['rank']}.{fault['step']}.{fault['kind']}.done"
        if (fault["step"], fault["moment"]) == (now["step"], moment) and not done.exists():
            done.write_text(str(os.getpid()))
            if fault["kind"] == "exception":
                raise KeyError("a fault on order")
            os.kill(os.getpid(), getattr(signal, fault["kind"]))

class Numbers:
    table = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return SAMPLES

    def batch(self, indices, generator):
        now["step"] = steps.get(tuple(indices.tolist()), 0)
        strike("data")
        return (self.table[indices] + 0.01 * torch.randn(len(indices), WIDTH, generator=generator),)

def loss(model, batch):
    (inputs,) = batch
    strike("loss")
    value = (model(inputs) - inputs.roll(1, dims=1)).square().mean()
    value.register_hook(lambda gradient: strike("backward"))
    return value, {}

def task(spec):
    sampler = Sampler(SAMPLES, spec.training.seed, spec.training.global_batch_size, spec.micro_batch_size)
    for step in {fault["step"] for fault in FAULTS}:
        for index in range(spec.micro_batches):
            steps[tuple(sampler.micro_batch(step, index).tolist())] = step
    register_optimizer_step_pre_hook(lambda *_: strike("update"))
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.BatchNorm1d(64), torch.nn.GELU(), torch.nn.Linear(64, WIDTH))
    return Task(model=model, train=Numbers(), loss=loss)
'''


class Fault(NamedTuple):
    """`rank` is the one that the process was started as; `kind` a signal's name, or "exception"."""

    rank: int
    step: int
    kind: str = "SIGKILL"
    moment: Moment = "loss"


def faulty_job(folder: Path, *faults: Fault, nodes: int = 2, steps: int = 12, **changes: Any) -> dict[str, Any]:
    """A job that closes up, with its code in `folder`. 12 samples a step in micro-batches of 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faulty_task.py").write_text(SOURCE)
    (folder / "faults.json").write_text(json.dumps([fault._asdict() for fault in faults]))
    training = {"steps": steps, "global_batch_size": 12, "micro_batch_size": 2, "eval_every_steps": None}
    return {
        "name": "faulty",
        "resources": {"nodes": nodes},
        "entrypoint": "faulty_task:task",
        "environment": {"working_directory": str(folder)},
        "training": training,
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "close_up"},
    } | changes
