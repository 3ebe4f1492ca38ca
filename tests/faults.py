"""Faults by (rank, step, moment), never by sleeping: a task whose chosen rank dies in the middle of the chosen step."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.waiting import wait_until

STOP_TIMEOUT_SECONDS = 60.0

#: When in the step: fetching data, computing the loss, going back; with every gradient of its own computed, before its sums go out
#: ("exchange") or the finished slices go round ("gather"); with every gradient summed, while the others do not know yet that all is
#: well ("news"), or just before the update. Or in the save that follows it: planning, writing tensors, hashing them, just before and just
#: after the rename (rank 0 only).
Moment = Literal["data", "loss", "backward", "exchange", "gather", "news", "update", "plan", "write", "hash", "publish", "published"]

SOURCE = '''
"""A small network on made-up numbers that kills, stops or breaks itself where faults.json says so; once each, a file remembers.

It writes down what each process computes (`computed`: pid, step, micro-batch) and what each step leads to (`states`: pid, step, hash).
"""
import ctypes, hashlib, json, os, pathlib, signal, time
import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from distributed.process_group import WorldGroup
from training import manifest
from training.builtin import next_token_loss
from training.data.sampler import Portions, Sampler
from training.models.gpt.model import build
from training.task import Task
from training.workload import GptModel

FOLDER = pathlib.Path(__file__).parent
BORN = pathlib.Path(os.environ["PACELINE_RANK_FOLDER"])
RANK, GENERATION = int(BORN.name.removeprefix("rank")), int(BORN.parent.name.removeprefix("g"))
WIDTH = 32
PLANNED = json.loads((FOLDER / "faults.json").read_text())
FAULTS = [fault for fault in PLANNED if fault["rank"] == RANK and fault["generation"] in (None, GENERATION)]
places, now = {}, {"step": 0, "micro_batch": 0, "transfers": 0}

def note(file, *words):
    with open(FOLDER / file, "a") as notes:
        notes.write(" ".join(map(str, (os.getpid(), *words))) + "\\n")

def due(moment):
    for fault in FAULTS:
        done = FOLDER / fault["done"]
        here = (fault["step"], fault["moment"]) == (now["step"], moment) and fault["micro_batch"] in (None, now["micro_batch"])
        if here and not done.exists():
            return fault, done
    return None

def strike(moment):
    if found := due(moment):
        fault, done = found
        done.write_text(str(os.getpid()))
        break_by(fault["kind"], done)

def break_by(kind, done):
    if kind == "exception":
        raise KeyError("a fault on order")
    if kind == "hold":
        return wait_for(done.with_suffix(".go"))
    if kind == "loop":
        while True:
            pass
    if kind == "native":  # unlike time.sleep it keeps the interpreter's lock
        ctypes.PyDLL(None).sleep(3600)
    if kind == "mismatch":  # nobody else comes to this broadcast
        torch.distributed.broadcast(torch.zeros(3), src=0)
    os.kill(os.getpid(), getattr(signal, kind))

def wait_for(file):
    """Of a test that has died nobody else would end this process."""
    deadline = time.monotonic() + 120.0
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)

def strike_around(owner, name, before, after=None):
    call = getattr(owner, name)
    def struck(*arguments):
        strike(before)
        answer = call(*arguments)
        strike(after)
        return answer
    setattr(owner, name, struck)

class Table:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def batch(self, indices, generator):
        now["step"], now["micro_batch"] = places.get(tuple(indices.tolist()), (0, 0))
        now["transfers"] = 0
        strike("data")
        if (FOLDER / "slow").exists():
            time.sleep(0.05)
        rows = self.rows[indices]
        return (rows + 0.01 * torch.randn(rows.shape, generator=generator) if rows.is_floating_point() else rows,)

def loss(model, batch):
    strike("loss")
    note("computed", now["step"], now["micro_batch"])
    (inputs,) = batch
    value = (model(inputs) - inputs.roll(1, dims=1)).square().mean() if inputs.is_floating_point() else next_token_loss(model, batch)[0]
    value.register_hook(lambda gradient: strike("backward"))
    return value, {}

def transfer(group, operations):
    now["transfers"] += 1
    strike({1: "exchange", 2: "gather"}.get(now["transfers"]))
    return unpatched["transfer"](group, operations)

def start_sum(group, values):
    return (lambda: strike("news") or unpatched["start_sum"](group, values)()) if due("news") else unpatched["start_sum"](group, values)

unpatched = {"transfer": WorldGroup.transfer, "start_sum": WorldGroup.start_sum}

def digest(model):
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()

def samples(spec):
    """Each is used once, so that a batch tells its step."""
    return spec.training.steps * spec.training.global_batch_size

def watch(spec, model):
    sampler = Sampler(samples(spec), spec.training.seed, Portions(spec.training.global_batch_size, spec.micro_batch_size))
    for step in range(1, spec.training.steps + 1):
        for index in range(spec.micro_batches):
            places[tuple(sampler.micro_batch(step, index).tolist())] = (step, index)
    strike_around(FileSystemWriter, "prepare_local_plan", "plan")
    strike_around(FileSystemWriter, "write_data", "write")
    strike_around(manifest, "describe", "hash")
    strike_around(manifest, "publish", "publish", "published")
    register_optimizer_step_pre_hook(lambda *_: strike("update"))
    register_optimizer_step_post_hook(lambda *_: now["step"] and note("states", now["step"], digest(model)))
    WorldGroup.transfer, WorldGroup.start_sum = transfer, start_sum

def task(spec):
    """With batch norm."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.BatchNorm1d(64), torch.nn.GELU(), torch.nn.Linear(64, WIDTH))
    watch(spec, model)
    return Task(model=model, train=Table(torch.randn(samples(spec), WIDTH, generator=torch.Generator().manual_seed(0))), loss=loss)

def gpt(spec):
    """With dropout."""
    model = build(GptModel(kind="gpt", layers=1, heads=2, dim=16, context=16, dropout=0.1))
    watch(spec, model)
    return Task(model=model, train=Table(torch.randint(0, 256, (samples(spec), 17), generator=torch.Generator().manual_seed(0))), loss=loss)
'''


class Fault(NamedTuple):
    """`rank` and `generation` are those that the process was started as. `kind` is a signal's name, "exception", "hold" (wait there until
    `release` is called), or how to get stuck: "loop", "native" (in C, with the interpreter's lock), "mismatch" (in a collective that nobody
    else comes to)."""

    rank: int
    step: int
    kind: str = "SIGKILL"
    moment: Moment = "loss"
    micro_batch: int | None = None  # None: the first one that comes to this moment
    generation: int | None = None  # None: whichever

    @property
    def done(self) -> str:
        """The file that tells that it happened."""
        place = f"{self.rank}" if self.generation is None else f"g{self.generation}.{self.rank}"
        return f"fault.{place}.{self.step}.{self.kind}.done"

    def release(self, folder: Path) -> None:
        (folder / self.done).with_suffix(".go").touch()


def go_on(pid: int) -> None:
    """Continue a process that stops itself: it says so just before it does, and a SIGCONT that comes in between is lost."""
    wait_until(lambda: state_of(pid) in "TX", f"the stop of process {pid}", seconds=STOP_TIMEOUT_SECONDS)
    os.kill(pid, signal.SIGCONT)


def state_of(pid: int) -> str:
    """One letter of the kernel's: R runs, S sleeps, T is stopped, X is gone; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def slow_down(folder: Path) -> Path:
    """Steps take a while until the answer is deleted: time to see what happens beside them, without waiting for the rest."""
    (folder / "slow").touch()
    return folder / "slow"


def faulty_job(folder: Path, *faults: Fault, nodes: int = 2, steps: int = 12, task: str = "task", **changes: Any) -> dict[str, Any]:
    """A job that closes up, with its code in `folder`. 12 samples a step in micro-batches of 2. `task`: "gpt" has dropout, "task" batch norm."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faulty_task.py").write_text(SOURCE)
    plan(folder, faults)
    training = {"steps": steps, "global_batch_size": 12, "micro_batch_size": 2, "eval_every_steps": None}
    return {
        "name": "faulty",
        "resources": {"nodes": nodes},
        "entrypoint": f"faulty_task:{task}",
        "environment": {"working_directory": str(folder)},
        "training": training,
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "close_up"},
    } | changes


def plan(folder: Path, faults: Iterable[Fault]) -> None:
    """Read by processes as they start."""
    (folder / "faults.json").write_text(json.dumps([fault._asdict() | {"done": fault.done} for fault in faults]))


def computed(folder: Path) -> Counter[tuple[int, int, int]]:
    """How often which process began to compute which micro-batch of which step: (pid, step, micro-batch)."""
    return Counter((int(pid), int(step), int(index)) for pid, step, index in _notes(folder / "computed"))


def states(folder: Path) -> dict[int, set[str]]:
    """By step, the hashes of parameters and running statistics that the processes came to: one, where all is well."""
    found: dict[int, set[str]] = {}
    for _, step, digest in _notes(folder / "states"):
        found.setdefault(int(step), set()).add(digest)
    return found


def _notes(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]
