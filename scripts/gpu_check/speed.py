"""Tokens a second and MFU of a job beside the same loop by hand, what its telemetry costs, and its memory beside the estimate."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paceline.monitoring.devices import model_flops_utilization, peak_of
from paceline.parallelism.model_shape import CPU as CPU_KERNELS
from paceline.parallelism.model_shape import CUDA as CUDA_KERNELS
from paceline.parallelism.planning.memory import RankMemory
from paceline.training.link import RankPlace
from paceline.training.models.gpt.config import GptModel
from paceline.training.planning.estimates import memory_of
from paceline.training.planning.flops import model_flops
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.task import Dataset
from scripts.bench.parallel.turns import Loop, in_turns
from scripts.gpu_check import loops
from scripts.gpu_check.machine import Machine, RowSkippedError
from scripts.gpu_check.outcome import RowFailedError, Seen
from scripts.gpu_check.ranks import enter, on_ranks
from tests.allocations import peak_bytes

TINY = {"layers": 2, "heads": 2, "dim": 64, "context": 32}
ROUNDS, QUICK_ROUNDS = 10, 2
STEPS = 3  # of each loop in a round
GOAL = 0.98
#: The share of a step that telemetry may take.
TELEMETRY_SHARE = 0.01
#: The job and the bare loop are there at the same time, and the allocator leaves gaps.
COPIES, USABLE = 2, 0.9
TOLERANCE = 0.15


def beside_bare(preset: str, micro_batch: int) -> Callable[[Machine], Seen]:
    return partial(check_speed, preset, micro_batch)


def check_speed(preset: str, micro_batch: int, machine: Machine) -> Seen:
    spec = spec_for(machine, {"preset": preset}, micro_batch, "bf16")
    require_memory(machine, spec)
    rounds = in_one_process(machine, time_beside_bare, spec, rounds_of(machine))
    ratio = statistics.median(each["bare"] / each["ours"] for each in rounds)
    seconds = statistics.median(each["ours"] for each in rounds)
    if not machine.quick and ratio < GOAL:
        raise RowFailedError(f"{ratio:.3f} of the bare loop's speed, less than {GOAL}; a step takes {1000 * seconds:.1f} ms")
    return Seen(f"{ratio:.3f} of the bare loop's speed; {rate_of(spec, seconds, machine)}", {"ratio": ratio, "step_seconds": seconds})


def rate_of(spec: JobSpec, seconds: float, machine: Machine) -> str:
    assert isinstance(spec.model, GptModel)
    samples, flops = derived.training_of(spec).global_batch_size / seconds, model_flops(spec)
    text = f"{samples * spec.model.context:,.0f} tokens/s"
    name = torch.cuda.get_device_name(0) if machine.device == "cuda" else "a CPU"
    peak = peak_of(name, spec.precision)
    if flops is None or peak is None:
        return f"{text}, MFU n/a: the peak of {name} is not known"
    return (
        f"{text}, MFU {model_flops_utilization(samples, flops.per_sample, peak.flops):.3f} of {peak.flops / 1e12:g} TFLOP/s ({peak.source})"
    )


def require_memory(machine: Machine, spec: JobSpec) -> None:
    if machine.device == "cpu":
        return
    needed, there = COPIES * estimate(machine, spec).total, USABLE * torch.cuda.get_device_properties(0).total_memory
    if needed > there:
        raise RowSkippedError(f"two of it need about {needed / 2**30:.0f} GiB, and of this GPU {there / 2**30:.0f} GiB can be used")


def check_telemetry(machine: Machine) -> Seen:
    spec = spec_for(machine, {"layers": 4, "heads": 4, "dim": 256, "context": 256}, 8, "bf16")
    rounds = in_one_process(machine, time_telemetry, spec, rounds_of(machine))
    costs = statistics.median(each["recorded"] - each["unrecorded"] for each in rounds)
    step = statistics.median(each["unrecorded"] for each in rounds)
    share = costs / step
    if not machine.quick and share > TELEMETRY_SHARE:
        raise RowFailedError(f"{1e6 * costs:.0f} us of a step of {1000 * step:.1f} ms, more than {TELEMETRY_SHARE:.0%} of it")
    return Seen(f"{1e6 * costs:.0f} us a step, {share:+.2%} of {1000 * step:.2f} ms", {"seconds": costs, "share": share})


def check_memory(machine: Machine) -> Seen:
    model = {"preset": "gpt-124m"}
    specs = {
        "fp32": spec_for(machine, model, 4),
        "bf16": spec_for(machine, model, 4, "bf16"),
        "selective checkpointing": spec_for(machine, model, 4, activation_checkpointing="selective"),
        "full checkpointing": spec_for(machine, model, 4, activation_checkpointing="full"),
        "reproducible": spec_for(machine, model, 4, reproducible=True),
    }
    errors = {name: error_of(machine, spec) for name, spec in specs.items()}
    listed = ", ".join(f"{name} {error:+.3f}" for name, error in errors.items())
    worst = max(map(abs, errors.values()))
    if not machine.quick and worst > TOLERANCE:
        raise RowFailedError(f"estimates are up to {worst:.2f} off, more than {TOLERANCE}: {listed}")
    return Seen(f"estimate over measured, less 1: {listed}", errors)


def error_of(machine: Machine, spec: JobSpec) -> float:
    return float(estimate(machine, spec).total / in_one_process(machine, measure_peak, spec, STEPS) - 1)


def estimate(machine: Machine, spec: JobSpec) -> RankMemory:
    found = memory_of(spec, CUDA_KERNELS if machine.device == "cuda" else CPU_KERNELS)
    assert found is not None  # a model of our own
    return found


def spec_for(machine: Machine, model: Mapping[str, Any], micro_batch: int, precision: str = "fp32", **changes: Any) -> JobSpec:
    """`changes`: `activation_checkpointing`, or fields of the spec."""
    parallelism = {"strategy": "single", "activation_checkpointing": changes.pop("activation_checkpointing", "none")}
    return loops.spec_of(TINY if machine.quick else model, micro_batch, precision, parallelism=parallelism, **changes)


def rounds_of(machine: Machine) -> int:
    return QUICK_ROUNDS if machine.quick else ROUNDS


def in_one_process(machine: Machine, function: Callable[..., Any], spec: JobSpec, *arguments: Any) -> Any:
    """`function(world, folder, spec, *arguments)` on the first device."""
    with tempfile.TemporaryDirectory() as folder:
        return on_ranks(machine, 1, function, Path(folder), spec.model_dump(mode="json"), *arguments)[0]


def time_beside_bare(world: RankPlace, folder: Path, document: dict[str, Any], rounds: int) -> list[dict[str, float]]:
    device, spec = enter(world), JobSpec.model_validate(document)
    ours = loops.job(world, folder, spec, device)
    assert isinstance(ours.state.task.train, Dataset)
    pair: dict[str, Loop] = {"ours": ours.step, "bare": loops.bare(spec, ours.state.task.train, device)}
    return in_turns(pair, rounds, steps=STEPS, synchronize=partial(finish, device))


def time_telemetry(world: RankPlace, folder: Path, document: dict[str, Any], rounds: int) -> list[dict[str, float]]:
    device = enter(world)
    job = loops.job(world, folder, JobSpec.model_validate(document), device)
    return in_turns({"recorded": job.step, "unrecorded": job.run_step}, rounds, steps=STEPS, synchronize=partial(finish, device))


def measure_peak(world: RankPlace, folder: Path, document: dict[str, Any], steps: int) -> int:
    """Bytes, of all that the steps allocate and hold."""
    device, spec = enter(world), JobSpec.model_validate(document)

    def run() -> None:
        job = loops.job(world, folder, spec, device)
        for _ in range(steps):
            job.step()

    if device.type == "cpu":
        return peak_bytes(run)
    run()
    return torch.cuda.max_memory_allocated(device)


def finish(device: torch.device) -> None:
    """Wait until the device has done all work that the host has queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
